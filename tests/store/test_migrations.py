from __future__ import annotations

import asyncio
import itertools
import re
from importlib import resources
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from store.kickoff_rows import Rows
from windlass.store import migrate as module
from windlass.store.database import Database
from windlass.store.migrate import (
    MIGRATED_BY,
    NEEDED,
    DatabaseTooNew,
    MigrationError,
    known_functions,
    known_migrations,
    migrate,
    schema_of,
)

if TYPE_CHECKING:
    from uuid import UUID

EVERY = list(known_migrations())
WAITING = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'kickoffs'::regclass"
ROUTINES = """
SELECT oid::regprocedure::text AS name, md5(pg_get_functiondef(oid)) AS text, xmin::text AS written_by
  FROM pg_proc
 WHERE pronamespace = 'public'::regnamespace AND proname NOT LIKE 'procrastinate%%'
UNION ALL
SELECT oid::regclass::text, pg_get_viewdef(oid), xmin::text
  FROM pg_class
 WHERE relnamespace = 'public'::regnamespace AND relkind = 'v'
UNION ALL
SELECT tgname, pg_get_triggerdef(oid), xmin::text
  FROM pg_trigger
 WHERE tgrelid = 'kickoffs'::regclass
 ORDER BY name
"""


@pytest.fixture
def empty_url(database_url: str) -> str:
    """Of a database as an administrator hands it over: nothing is in it."""
    with psycopg.connect(database_url) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return database_url


async def test_an_empty_database_gets_every_table(empty_url: str) -> None:
    async with Database(empty_url) as database:
        assert (await schema_of(database)).fault
        assert await migrate(database) == EVERY
        assert (await schema_of(database)).fault is None
        assert await migrate(database) == []


async def test_of_servers_that_start_at_once_one_migrates_and_the_others_wait(empty_url: str) -> None:
    async with Database(empty_url) as one, Database(empty_url) as two, Database(empty_url) as three:
        applied = await asyncio.gather(migrate(one), migrate(two), migrate(three))
    assert sorted(applied) == [[], [], EVERY]


async def test_a_migration_that_fails_leaves_nothing(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {**known_migrations(), len(EVERY) + 1: "CREATE TABLE half (a int); SELECT 1/0"}
    monkeypatch.setattr(module, "known_migrations", lambda: broken)
    async with Database(empty_url) as database:
        with pytest.raises(MigrationError, match=r"Migration \d+ failed: division by zero. Nothing of it was kept."):
            await migrate(database)
        assert await database.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == []


async def test_what_failed_is_done_when_it_is_mended(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Database(empty_url) as database:
        monkeypatch.setattr(module, "known_migrations", lambda: {1: "SELECT 1/0"})
        with pytest.raises(MigrationError):
            await migrate(database)
        monkeypatch.undo()
        assert await migrate(database) == EVERY


async def test_only_what_is_missing_is_done(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Database(empty_url) as database:
        await migrate(database)
        more = {**known_migrations(), len(EVERY) + 1: "CREATE TABLE more (a int)"}
        monkeypatch.setattr(module, "known_migrations", lambda: more)
        assert (await schema_of(database)).fault
        assert await migrate(database) == [len(EVERY) + 1]
        assert (await schema_of(database)).fault is None


async def test_a_user_without_the_right_is_told_so(empty_url: str) -> None:
    async with Database(empty_url) as database:
        await database.execute("REVOKE CREATE ON SCHEMA public FROM CURRENT_USER")
        with pytest.raises(MigrationError, match="must be allowed to make tables"):
            await migrate(database)


async def migrate_as_newer(database: Database, patch: pytest.MonkeyPatch, *more: str, functions: str = "") -> None:
    """As a release with these further migrations does it, and with further functions."""
    known = known_migrations() | dict(enumerate(more, len(EVERY) + 1))
    text = known_functions() + functions
    with patch.context() as newer:
        newer.setattr(module, "known_migrations", lambda: known)
        newer.setattr(module, "known_functions", lambda: text)
        newer.setattr(module, "version", lambda _: "7.8.9")
        await migrate(database)


async def test_a_database_that_a_newer_release_has_contracted_is_refused(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = len(EVERY)
    more = ("CREATE TABLE more (a int)", f"-- contracts: {newest + 1}\nDROP TABLE more")
    async with Database(empty_url) as database:
        await migrate(database)
        await migrate_as_newer(database, monkeypatch, *more)
        assert (found := await schema_of(database)).is_too_new
        assert (await schema_of(database)).fault
        words = (
            rf"newer Windlass 7\.8\.9 \(migration {newest + 2}\).*needs a server that knows migration {newest + 1}.*"
        )
        with pytest.raises(DatabaseTooNew, match=rf"{words}knows up to {newest}\. Start a newer version"):
            await migrate(database)
        assert found.fault is not None
        assert await database.rows("SELECT 1 FROM settings WHERE name = %(name)s", {"name": NEEDED})


async def test_a_database_that_a_newer_release_has_expanded_is_used_and_left_as_it_is(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = "CREATE OR REPLACE FUNCTION more() RETURNS int LANGUAGE sql AS 'SELECT 1';"
    more = ("CREATE TABLE more (a int)", f"-- contracts: {len(EVERY)}\nDROP TABLE more")
    async with Database(empty_url) as database:
        await migrate(database)
        await migrate_as_newer(database, monkeypatch, *more, functions=added)
        found = await schema_of(database)
        assert (found.is_newer, found.is_too_new, found.fault, found.migrated_by) == (True, False, None, "7.8.9")
        before = await routines(database, "name", "written_by")
        assert await migrate(database) == []
        assert await routines(database, "name", "written_by") == before
        assert ("more()",) in await routines(database, "name")
        (row,) = await database.rows("SELECT value FROM settings WHERE name = %(name)s", {"name": MIGRATED_BY})
        assert row["value"] == "7.8.9"


async def test_a_migration_gives_its_locks_back_while_a_table_is_locked(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that came after it would wait for the transaction that holds the lock, for hours if it is a dump."""
    change = {**known_migrations(), len(EVERY) + 1: "ALTER TABLE kickoffs ADD COLUMN more int"}
    async with Database(empty_url) as database:
        await migrate(database)
        rows = await Rows.make(database)
        monkeypatch.setattr(module, "known_migrations", lambda: change)
        with psycopg.connect(empty_url) as dump:
            dump.execute("SELECT count(*) FROM kickoffs")  # its lock lasts until the end of the transaction
            migrating = asyncio.create_task(migrate(database))
            async with asyncio.timeout(60):
                while not await database.rows(WAITING):
                    pass
                await rows.accept()  # it waits for the migration, which gives up
            assert not migrating.done()
        assert await migrating == [len(EVERY) + 1]


async def test_a_kickoff_that_is_accepted_while_a_migration_locks_its_deployment_does_not_fail(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It locks kickoffs, then deployments. Of it and a migration with the other order, PostgreSQL ends one."""
    change = {**known_migrations(), len(EVERY) + 1: "ALTER TABLE deployments ADD COLUMN more int"}
    text = known_functions() + "-- newer"
    async with Database(empty_url) as database:
        await migrate(database)
        await Rows.make(database)
        monkeypatch.setattr(module, "known_migrations", lambda: change)
        monkeypatch.setattr(module, "known_functions", lambda: text)
        with psycopg.connect(empty_url) as accepting:
            accepting.execute("LOCK TABLE kickoffs IN ROW EXCLUSIVE MODE")
            assert await migrate(database) == [len(EVERY) + 1]
            assert accepting.execute("SELECT 1 FROM deployments FOR KEY SHARE").fetchall() == [(1,)]


async def test_a_migration_fails_when_a_table_stays_locked(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change = {**known_migrations(), len(EVERY) + 1: "ALTER TABLE kickoffs ADD COLUMN more int"}
    monkeypatch.setattr(module, "TRIES", 2)
    monkeypatch.setattr(module, "LOCK_SECONDS", 1)
    async with Database(empty_url) as database:
        await migrate(database)
        monkeypatch.setattr(module, "known_migrations", lambda: change)
        with psycopg.connect(empty_url) as dump:
            dump.execute("SELECT count(*) FROM kickoffs")
            with pytest.raises(MigrationError, match=r"another transaction has locked.*pg_stat_activity"):
                await migrate(database)
        assert (await schema_of(database)).fault


async def test_a_server_that_is_too_old_is_refused(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OLDEST_SERVER", 990000)
    async with Database(empty_url) as database:
        with pytest.raises(MigrationError, match="is too old"):
            await migrate(database)


def test_migrations_are_numbered_without_a_gap() -> None:
    assert list(range(1, len(EVERY) + 1)) == EVERY


def test_every_file_among_the_migrations_is_one() -> None:
    folder = resources.files("windlass.store").joinpath("migrations")
    assert len([entry for entry in folder.iterdir() if entry.name.endswith(".sql")]) == len(EVERY)


async def routines(database: Database, *members: str) -> list[tuple[Any, ...]]:
    return [tuple(row[member] for member in members) for row in await database.rows(ROUTINES)]


async def test_functions_are_replaced_only_when_a_file_has_changed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await routines(database, "name", "written_by")
    await migrate(database)
    assert await routines(database, "name", "written_by") == before
    text = known_functions() + "CREATE OR REPLACE FUNCTION more() RETURNS int LANGUAGE sql AS 'SELECT 1';"
    monkeypatch.setattr(module, "known_functions", lambda: text)
    assert await migrate(database) == []
    after = await routines(database, "name", "written_by")
    assert {name for name, _ in set(before) & set(after)} <= {"kickoff_moved"}  # the trigger, which is made once
    assert {name for name, _ in after} - {name for name, _ in before} == {"more()"}
    await migrate(database)
    assert await routines(database, "name", "written_by") == after


async def test_functions_that_fail_leave_all_as_it_was(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await routines(database, "name", "written_by")
    text = known_functions() + "CREATE FUNCTION broken() RETURNS nothing LANGUAGE sql AS '';"
    monkeypatch.setattr(module, "known_functions", lambda: text)
    with pytest.raises(MigrationError, match=r'The replacement of the functions failed: type "nothing"'):
        await migrate(database)
    assert await routines(database, "name", "written_by") == before


async def test_a_server_of_an_older_version_serves_with_newer_functions(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = known_functions() + "-- newer"
    monkeypatch.setattr(module, "known_functions", lambda: text)
    await migrate(database)
    monkeypatch.undo()
    assert (await schema_of(database)).fault is None


async def test_kickoffs_run_while_functions_are_replaced(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = await Rows.make(database)
    ids = await rows.accept(30, concurrency_key="k")
    texts = (f"{known_functions()}-- {number}" for number in itertools.count())
    monkeypatch.setattr(module, "known_functions", lambda: next(texts))
    replaced = 0

    async def replace() -> None:
        nonlocal replaced
        while True:
            await migrate(database)
            replaced += 1

    replacing = asyncio.create_task(replace())
    ended: list[UUID] = []
    async with asyncio.timeout(60):
        while len(ended) < len(ids) or replaced < 3:
            for claimed in await rows.claim():
                assert await rows.settle(claimed)
                ended.append(claimed.id)
    replacing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await replacing
    assert sorted(ended) == sorted(ids)


def test_each_file_of_functions_says_what_it_is_for_and_can_be_run_again() -> None:
    files = [entry.read_text() for entry in resources.files("windlass.store").joinpath("functions").iterdir()]
    assert files
    for text in files:
        assert text.startswith("-- ")
        assert re.findall(r"^CREATE (?!OR REPLACE FUNCTION )", text, re.MULTILINE) == []


def test_migrations_make_no_functions() -> None:
    """Those of a migration would be replaced by nothing when they change."""
    made = "\n".join(known_migrations().values())
    assert re.findall(r"CREATE (?:OR REPLACE )?(?:FUNCTION|TRIGGER|VIEW)\b", made) == []

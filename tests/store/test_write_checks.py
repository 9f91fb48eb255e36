"""A write that finds out whether the database accepts writes."""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from api.serving import until
from faults.harm import full
from faults.small_disk import needed_small_disk
from store.stock_postgres import INSTALLED, MISSING, others, server
from windlass.embedded_postgres.data_folder import SUPERUSER
from windlass.store.database import Database
from windlass.store.migrate import migrate
from windlass.store.write_checks import READ_ONLY, SLOW, write_fault

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = "SELECT pg_relation_size('write_checks') / 8192 AS pages, (SELECT count(*) FROM write_checks) AS rows"


@contextmanager
def holding(url: str, order: str) -> Iterator[None]:
    """A transaction of another client, which stays open."""
    with psycopg.connect(url) as connection:
        connection.execute(order.encode())
        yield


@contextmanager
def on_small_disk(url: str, folder: Path) -> Iterator[None]:
    """The table of the checks is on a disk of its own, of 8 MB."""
    with needed_small_disk(folder / "disk", 8), psycopg.connect(url, user=SUPERUSER, autocommit=True) as connection:
        (data,) = connection.execute("SHOW data_directory").fetchone() or ("",)
        place = folder / "disk" / "tables"
        place.mkdir()
        owner = Path(data).stat()
        os.chown(place, owner.st_uid, owner.st_gid)
        name = Identifier(f"small_{os.getpid()}")
        connection.execute(SQL("CREATE TABLESPACE {} LOCATION {}").format(name, str(place)))
        connection.execute(SQL("ALTER TABLE write_checks SET TABLESPACE {}").format(name))
        try:
            yield
        finally:
            connection.execute("ALTER TABLE write_checks SET TABLESPACE pg_default")
            connection.execute(SQL("DROP TABLESPACE {}").format(name))


async def state(database: Database) -> dict[str, Any]:
    (found,) = await database.rows(PAGES)
    return found


async def test_checks_leave_one_page(database_url: str) -> None:
    async with Database(database_url) as database:
        faults = [await write_fault(database) for _ in range(3)]
        faults += await asyncio.gather(*(write_fault(database) for _ in range(5)))
        assert faults == [None] * 8
        assert await write_fault(database) is None
        assert await state(database) == {"pages": 1, "rows": 1}


async def test_a_full_disk_is_found_also_while_tables_have_room_and_a_dump_runs(
    database_url: str, open_folder: Path
) -> None:
    async with Database(database_url) as database:
        with on_small_disk(database_url, open_folder):
            assert await write_fault(database) is None
            with full(open_folder / "disk"):
                for _ in range(3):
                    assert "disk of the database is full" in str(await write_fault(database))
                with holding(database_url, "LOCK TABLE write_checks IN ACCESS SHARE MODE"):
                    assert "disk of the database is full" in str(await write_fault(database))
            assert await write_fault(database) is None


async def test_a_dump_of_the_database_does_not_fail_the_check(database_url: str) -> None:
    async with Database(database_url) as database:
        with holding(database_url, "LOCK TABLE write_checks IN ACCESS SHARE MODE"):
            assert [await write_fault(database) for _ in range(3)] == [None] * 3
            assert (await state(database))["pages"] == 3
        assert await write_fault(database) is None
        assert await state(database) == {"pages": 1, "rows": 1}


async def test_a_write_that_waits_for_a_lock_is_given_up(database_url: str) -> None:
    async with Database(database_url) as database:
        with holding(database_url, "LOCK TABLE write_checks IN SHARE MODE"):
            async with asyncio.timeout(30):
                assert await write_fault(database) == SLOW
        assert await write_fault(database) is None


async def test_a_read_only_database_is_found_also_before_it_has_tables(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        name = Identifier(connection.info.dbname)
        connection.execute(SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
        async with Database(database_url) as database:
            assert await write_fault(database) == READ_ONLY
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        async with Database(database_url) as database:
            assert await write_fault(database) == READ_ONLY
        connection.execute(SQL("ALTER DATABASE {} RESET ALL").format(name))
    async with Database(database_url) as database:
        assert await write_fault(database) is None


async def test_a_user_without_rights_is_found(database_url: str) -> None:
    with psycopg.connect(database_url, user=SUPERUSER, autocommit=True) as connection:
        connection.execute("ALTER TABLE write_checks OWNER TO CURRENT_USER")
        async with Database(database_url) as database:
            assert "SQLSTATE 42501" in str(await write_fault(database))
        connection.execute("ALTER TABLE write_checks OWNER TO windlass")


@contextmanager
def standby(primary: str, folder: Path) -> Iterator[str]:
    """The URL of a copy that follows the primary."""
    programs, copy, account = INSTALLED[0].parent, folder / "standby", others(folder)
    copy.mkdir(0o700)
    others(copy)
    orders = [
        [programs / "pg_basebackup", "-D", copy, "-d", primary, "--checkpoint=fast", "--write-recovery-conf"],
        [programs / "pg_ctl", "-w", "-D", copy, "-l", folder / "log", "-o", f"-c fsync=off -k {folder}", "start"],
    ]
    try:
        for order in orders:
            subprocess.run(order, check=True, capture_output=True, cwd=folder, **account)  # type: ignore[call-overload]
        yield make_conninfo(primary, host=str(folder))
    finally:
        stop = [programs / "pg_ctl", "-w", "-D", copy, "-m", "immediate", "stop"]
        subprocess.run(stop, check=False, capture_output=True, cwd=folder, **account)  # type: ignore[call-overload]


@pytest.mark.skipif(not INSTALLED, reason=MISSING)
async def test_a_standby_is_read_only_until_it_is_promoted(open_folder: Path) -> None:
    with server(INSTALLED[0].parent) as primary:
        async with Database(primary) as database:
            await migrate(database)
        with standby(primary, open_folder) as url:
            async with Database(url) as database:
                assert await write_fault(database) == READ_ONLY
                await database.execute("SELECT pg_promote()")
                assert await write_fault(database) is None


@pytest.mark.skipif(not INSTALLED, reason=MISSING)
async def test_a_synchronous_standby_that_is_gone_is_found() -> None:
    with server(INSTALLED[0].parent) as url:
        async with Database(url) as database:
            await migrate(database)
            await database.execute("ALTER SYSTEM SET synchronous_standby_names = 'gone'")
            await database.execute("SELECT pg_reload_conf()")

            async def is_found() -> bool:
                return await write_fault(database) == SLOW

            await until(is_found, "the check is given up")

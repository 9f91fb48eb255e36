from __future__ import annotations

import asyncio
from importlib import resources

import psycopg
import pytest

from windlass.store import migrate as module
from windlass.store.database import Database
from windlass.store.migrate import MigrationError, is_migrated, known_migrations, migrate

EVERY = list(known_migrations())


@pytest.fixture
def empty_url(database_url: str) -> str:
    """Of a database as an administrator hands it over: nothing is in it."""
    with psycopg.connect(database_url) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return database_url


async def test_an_empty_database_gets_every_table(empty_url: str) -> None:
    async with Database(empty_url) as database:
        assert not await is_migrated(database)
        assert await migrate(database) == EVERY
        assert await is_migrated(database)
        assert await migrate(database) == []


async def test_of_servers_that_start_at_once_one_migrates_and_the_others_wait(empty_url: str) -> None:
    async with Database(empty_url) as one, Database(empty_url) as two, Database(empty_url) as three:
        applied = await asyncio.gather(migrate(one), migrate(two), migrate(three))
    assert sorted(applied) == [[], [], EVERY]


async def test_a_migration_that_fails_leaves_nothing(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {**known_migrations(), 2: "CREATE TABLE half (a int); SELECT 1/0"}
    monkeypatch.setattr(module, "known_migrations", lambda: broken)
    async with Database(empty_url) as database:
        with pytest.raises(MigrationError, match=r"Migration 2 failed: division by zero. Nothing of it was kept."):
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
        assert not await is_migrated(database)
        assert await migrate(database) == [len(EVERY) + 1]
        assert await is_migrated(database)


async def test_a_user_without_the_right_is_told_so(empty_url: str) -> None:
    async with Database(empty_url) as database:
        await database.execute("REVOKE CREATE ON SCHEMA public FROM CURRENT_USER")
        with pytest.raises(MigrationError, match="must be allowed to make tables"):
            await migrate(database)


async def test_a_database_of_a_newer_release_is_refused(empty_url: str) -> None:
    async with Database(empty_url) as database:
        await migrate(database)
        await database.execute("INSERT INTO migrations (number) VALUES (9999)")
        with pytest.raises(MigrationError, match="newer Windlass"):
            await migrate(database)


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

"""The tables of the side jobs follow the installed procrastinate, whatever version made them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from procrastinate.schema import SchemaManager

from windlass.store import side_job_tables as module
from windlass.store.migrate import MigrationError, migrate, schema_of
from windlass.store.side_job_tables import known_files

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.store.database import Database


async def recorded(database: Database) -> set[str]:
    return {row["name"] for row in await database.rows("SELECT name FROM side_job_migrations")}


def a_newer_version(monkeypatch: pytest.MonkeyPatch, folder: Path, statements: str) -> None:
    file = folder / "99.00.00_01_newer.sql"
    file.write_text(statements)
    known = known_files() | {file.stem: file}
    monkeypatch.setattr(module, "known_files", lambda: known)


def test_the_files_are_where_procrastinate_says_that_they_are() -> None:
    assert {str(file.parent) for file in known_files().values()} == {SchemaManager.get_migrations_path()}
    assert list(known_files()) == sorted(known_files())


async def test_a_new_database_has_the_tables_of_the_installed_version(database: Database) -> None:
    assert await recorded(database) == known_files().keys()
    (row,) = await database.rows("SELECT to_regclass('procrastinate_jobs') IS NOT NULL AS there")
    assert row["there"]


async def test_a_newer_version_brings_what_is_missing_and_only_that(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    a_newer_version(monkeypatch, tmp_path, "ALTER TABLE procrastinate_jobs ADD newer text -- 100%\n")
    assert (await schema_of(database)).fault
    await migrate(database)
    assert (await schema_of(database)).fault is None
    await migrate(database)
    assert await recorded(database) == known_files().keys() | {"99.00.00_01_newer"}


async def test_one_that_fails_leaves_all_as_it_was(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    a_newer_version(monkeypatch, tmp_path, "CREATE TABLE half (a int); SELECT 1/0")
    with pytest.raises(MigrationError, match=r"The migration of the side jobs failed: division by zero"):
        await migrate(database)
    (row,) = await database.rows("SELECT to_regclass('half') AS there")
    assert row["there"] is None
    monkeypatch.undo()
    assert (await schema_of(database)).fault is None


async def test_tables_of_a_newer_version_serve_an_older_one(database: Database) -> None:
    """As while servers are replaced one by one."""
    await database.execute("INSERT INTO side_job_migrations (name) VALUES ('99.00.00_01_newer')")
    assert await migrate(database) == []
    assert (await schema_of(database)).fault is None

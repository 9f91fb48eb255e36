"""Creates and migrates the tables of procrastinate, which runs the side jobs, with procrastinate's own statements.

A new database gets the schema of the installed version. A database with an older schema gets the missing files of the
version's migrations folder. The names of applied files are recorded. So an upgrade of procrastinate needs only a newer
version in the requirements.
"""

# See docs/decisions/store.md#migrations-of-procrastinate-are-applied-by-name

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.store.database import fetch, queries

if TYPE_CHECKING:
    from windlass.store.database import Connection

SQL = queries("side_jobs")


def _folder() -> Path:
    # Searched, not imported: the import would take longer than everything else in this module.
    spec = find_spec("procrastinate")
    assert spec is not None  # noqa: S101 - a dependency
    assert spec.origin is not None  # noqa: S101 - a package of files
    return Path(spec.origin).parent / "sql"


def known_files() -> dict[str, Path]:
    """Returns the migration files by name, in the order of their application."""
    return {file.stem: file for file in sorted((_folder() / "migrations").glob("*.sql"))}


async def bring_up(connection: Connection) -> list[str]:
    """Applies the missing files in the caller's transaction, and returns their names."""
    known = known_files()
    applied = await _applied(connection)
    missing = [name for name in known if name not in applied]
    if missing:
        files = [known[name] for name in missing] if applied else [_folder() / "schema.sql"]
        for file in files:
            await connection.execute(file.read_bytes())
        await connection.execute(SQL["note_migrations"], {"names": missing})
    return missing


async def is_up(connection: Connection) -> bool:
    return await _applied(connection) >= known_files().keys()


async def _applied(connection: Connection) -> set[str]:
    return {row["name"] for row in await fetch(connection, SQL["migrations"])}

"""The tables of procrastinate, which runs the side jobs: made and brought up to date by its own statements.

A new database gets the schema of the installed version; one that has an older one gets what that version's folder of
migrations has beyond it. The names of its files are recorded, so that a newer version in our requirements is all that
an upgrade takes.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.store.database import fetch
from windlass.store.named_queries import queries

if TYPE_CHECKING:
    from windlass.store.database import Connection

SQL = queries("side_jobs")


def _folder() -> Path:
    # Looked for, not imported: the import would take every command longer than all else that it does here.
    spec = find_spec("procrastinate")
    assert spec is not None  # noqa: S101 - a dependency
    assert spec.origin is not None  # noqa: S101 - a package of files
    return Path(spec.origin).parent / "sql"


def known_files() -> dict[str, Path]:
    """By name, in the order in which they are to be applied."""
    return {file.stem: file for file in sorted((_folder() / "migrations").glob("*.sql"))}


async def bring_up(connection: Connection) -> list[str]:
    """Within the caller's transaction; the names of what was applied."""
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

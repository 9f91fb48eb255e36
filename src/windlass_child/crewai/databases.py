"""Makes crewai's databases in the folder of a run do without waiting for the disk.

crewai writes the outputs of tasks, and states of flows, to SQLite, and opens and closes the database for each. A crew
of three tasks waits 28 times for the disk, and makes eight write-ahead logs. The folder is removed after the run, and
the worker has what must stay, so nothing is lost when the machine loses power. A database elsewhere is not changed.
"""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import ModuleType


WRITE_AHEAD = "PRAGMA journal_mode=WAL"


def store_quickly(modules: Iterable[ModuleType], folder: Path) -> None:
    """Changes how these modules open databases below `folder`, until the next call."""
    for module in modules:
        if hasattr(module, "sqlite3"):
            module.sqlite3 = Sqlite(folder)  # type: ignore[attr-defined]  # the module has imported it


class Sqlite:
    """Replaces the module sqlite3."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.join(os.path.realpath(folder), "")  # noqa: PTH118 - with a slash at its end

    def __getattr__(self, name: str) -> Any:
        return getattr(sqlite3, name)

    def connect(self, database: Any, *arguments: Any, **named: Any) -> sqlite3.Connection:
        is_below = os.path.realpath(str(database)).startswith(self._folder)
        if is_below:
            named = {"factory": Connection, **named}
        connection: sqlite3.Connection = sqlite3.connect(database, *arguments, **named)
        if is_below:
            connection.execute("PRAGMA synchronous=OFF")
        return connection


class Connection(sqlite3.Connection):
    """Leaves the write-ahead log off, which crewai switches on. It only pays for a database that stays open."""

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        return super().execute("PRAGMA journal_mode" if statement == WRITE_AHEAD else statement, *parameters)

"""crewai's databases in the folder of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from child.conftest import CREWAI
from projects_for_tests.making import Bench, function_project

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
import os
import sqlite3
from contextlib import closing

from crewai.flow.persistence import sqlite
from crewai.memory.storage import kickoff_task_outputs_storage


def modes(connection):
    return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")]


def run(elsewhere: str):
    storage = kickoff_task_outputs_storage.KickoffTaskOutputsSQLiteStorage()
    places = [storage.db_path, elsewhere + "/other.db"]
    found = {}
    for module in (kickoff_task_outputs_storage, sqlite):
        for place in places:
            with closing(module.sqlite3.connect(place, timeout=5)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                found[module.__name__, os.path.basename(place)] = modes(connection)
    with closing(sqlite3.connect(places[0])) as connection:
        found["own", "own"] = modes(connection)
    return [os.path.relpath(storage.db_path), list(found.values()), sqlite.sqlite3.Row is sqlite3.Row]
"""

QUICK, SAFE, OWN = [0, "delete"], [2, "wal"], [2, "delete"]


@pytest.mark.asyncio(loop_scope="session")
@CREWAI
async def test_those_in_the_folder_alone_do_not_wait_for_the_disk(bench: Bench, tmp_path: Path) -> None:
    project = function_project(tmp_path / "project", CODE)
    for reuse in (1, 5, 5):  # each run has another folder
        outcome = await bench.run(project, {"elsewhere": str(tmp_path)}, reuse=reuse, version="1")
        place, found, is_sqlite = outcome.json
        assert place == "../storage/latest_kickoff_task_outputs.db"
        assert found == [QUICK, SAFE, QUICK, SAFE, OWN]
        assert is_sqlite

"""The working folders of kickoffs that one process runs, one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.ends import kickoff_folders
from projects_for_tests.making import ScanAtEnd, function_project
from windlass.kickoffs.states import State

if TYPE_CHECKING:
    from projects_for_tests.making import Bench

CODE = """
import os, pathlib, tempfile

def forge(path):
    was = os.stat(path)
    pathlib.Path(path).write_text("B" * was.st_size)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def run(do="look"):
    places = [pathlib.Path(), pathlib.Path.home(), pathlib.Path(tempfile.gettempdir()), pathlib.Path("../storage")]
    found = sorted(str(path) for place in places for path in place.rglob("*") if path.name != "__pycache__")
    data = pathlib.Path("data.db").read_text()
    if do == "forge":
        forge("data.db")
    if do == "temporary":
        pathlib.Path(tempfile.gettempdir(), "file").write_text("of a run")
    if do == "storage":
        pathlib.Path("../storage/file").write_text("of a run")
    if do == "home":
        (pathlib.Path.home() / "file").write_text("of a run")
    if do == "cache":
        pathlib.Path(".cache").mkdir()
        pathlib.Path(".cache/file").write_text("of a run")
    if do == "write":
        pathlib.Path("report.md").write_text("of a run")
    return {"path": os.getcwd(), "pid": os.getpid(), "found": found, "data": data}
"""
FILLED = ["data.db", "pyproject.toml", "work.py"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = function_project(tmp_path / "project", CODE)
    (made / "data.db").write_text("AAAA")
    return made


async def run(bench: Bench, project: Path, do: str = "look") -> dict[str, Any]:
    outcome = await bench.run(project, {"do": do}, reuse=100, version="1", hooks=ScanAtEnd())
    assert outcome.state is State.SUCCESS, outcome.error
    found: dict[str, Any] = outcome.json
    return found


def exists(path: str) -> bool:
    return Path(path).exists()


@pytest.mark.parametrize("do", ["look", "forge", "temporary", "storage", "home", "cache", "write"])
async def test_a_kickoff_gets_nothing_of_the_folder_of_the_one_before_it(
    bench: Bench, project: Path, scratch: Path, do: str
) -> None:
    first, second = await run(bench, project, do), await run(bench, project)
    assert first["pid"] == second["pid"], "the process is the same"
    assert first["path"] == second["path"]
    assert not exists(first["path"])
    assert second["data"] == "AAAA"
    assert first["found"] == second["found"] == FILLED
    assert kickoff_folders(scratch) == []


async def test_a_later_kickoff_has_the_projects_files_as_they_are_then(bench: Bench, project: Path) -> None:
    (project / "old").mkdir()
    (project / "old" / "notes.txt").write_text("old")
    await run(bench, project)
    (project / "data.db").write_text("23")
    (project / "old" / "notes.txt").unlink()
    (project / "old").rmdir()
    (project / "new.txt").write_text("new")
    second = await run(bench, project)
    assert second["data"] == "23"
    assert second["found"] == sorted([*FILLED, "new.txt"])


async def test_a_path_that_is_taken_ends_the_process_and_no_kickoff(bench: Bench, project: Path) -> None:
    first = await run(bench, project)
    taken = Path(first["path"]).parent
    (taken / "file").mkdir(parents=True)
    second = await run(bench, project)
    assert second["pid"] != first["pid"]
    assert second["path"] != first["path"]

"""Folders of runs that are emptied and used again: by runs that may use the same process."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.ends import kickoff_folders
from projects_for_tests.making import DEADLINE, Bench, ScanAtEnd, function_project, written
from windlass.kickoffs.files import DEEPEST, FileLimits
from windlass.kickoffs.states import State
from windlass.runner import run_folder
from windlass.runner.run_folder import RunFolder
from windlass.runner.scratch import MOST_EMPTIED, Scratch
from windlass_child.process.working_folder import fill

if TYPE_CHECKING:
    from collections.abc import Callable

LIMITS = FileLimits()
CODE = """
import os, pathlib, tempfile

seen = None


def run(do="look"):
    found = sorted(str(path) for path in pathlib.Path().rglob("*") if path.name != "__pycache__")
    here = os.stat(".")
    if do == "temporary":
        tempfile.mkdtemp()
        pathlib.Path(tempfile.gettempdir(), "file").write_text("of a run")
    if do == "storage":
        pathlib.Path(".storage/file").write_text("of a run")
    if do == "write":
        pathlib.Path("report.md").write_text("of a run")
    if do == "fail":
        raise ValueError("as asked")
    return {"path": os.getcwd(), "folder": here.st_ino, "found": found, "data": pathlib.Path("data.db").read_text()}
"""
FILLED = [".storage", ".tmp", "data.db", "pyproject.toml", "work.py"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = function_project(tmp_path / "project", CODE)
    (made / "data.db").write_text("1")
    return made


async def run(bench: Bench, project: Path, do: str = "look", **more: Any) -> dict[str, Any]:
    outcome = await bench.run(project, {"do": do}, **{"reuse": 100, "version": "1", "hooks": ScanAtEnd(), **more})
    assert outcome.state is State.SUCCESS, outcome.error
    found: dict[str, Any] = outcome.json
    return found


def folders_with_copies(scratch: Path) -> list[Path]:
    return [path.parent for path in scratch.glob("r-*/k*/data.db")]


def exists(path: str) -> bool:
    return Path(path).exists()


@pytest.mark.parametrize("do", ["look", "temporary", "storage"])
async def test_a_folder_with_nothing_of_its_run_is_used_again_by_another_name(
    bench: Bench, project: Path, do: str
) -> None:
    first, second, third = [await run(bench, project, do) for _ in range(3)]
    assert first["folder"] == second["folder"] == third["folder"]
    assert len({first["path"], second["path"], third["path"]}) == 3
    assert not exists(first["path"])
    assert first["found"] == second["found"] == third["found"] == FILLED


async def test_a_folder_with_a_file_of_its_run_is_not_used_again(bench: Bench, project: Path, scratch: Path) -> None:
    first = await run(bench, project, "write")
    second = await run(bench, project)
    assert second["found"] == FILLED
    assert not exists(first["path"])
    assert second["path"] != first["path"]
    await bench.runner.stop()
    assert kickoff_folders(scratch) == []


@pytest.mark.parametrize(
    "other",
    [{"version": "2"}, {"environment": {"NAME": "value"}}, {"reuse": 1}, {"attempt": 2}, {"isolated": True}],
    ids=lambda other: next(iter(other)),
)
async def test_a_run_that_shares_no_process_or_resumes_another_one_has_a_folder_of_its_own(
    bench: Bench, project: Path, other: dict[str, Any]
) -> None:
    first = await run(bench, project, "storage")
    second = await run(bench, project, **other)
    assert second["folder"] != first["folder"]
    third = await run(bench, project)
    assert third["folder"] in {first["folder"], second["folder"] if "attempt" in other else None}


async def test_the_folder_of_a_process_that_ends_is_not_used_again(bench: Bench, project: Path, scratch: Path) -> None:
    await run(bench, project)
    assert len(folders_with_copies(scratch)) == 1
    failed = await bench.run(project, {"do": "fail"}, reuse=100, version="1", hooks=ScanAtEnd())
    assert failed.state is State.FAILED
    assert folders_with_copies(scratch) == []


async def test_a_later_run_has_the_projects_files_as_they_are_then(bench: Bench, project: Path) -> None:
    (project / "old").mkdir()
    (project / "old" / "notes.txt").write_text("old")
    first = await run(bench, project)
    (project / "data.db").write_text("23")
    (project / "old" / "notes.txt").unlink()
    (project / "old").rmdir()
    (project / "new.txt").write_text("new")
    second = await run(bench, project)
    assert second["folder"] == first["folder"]
    assert second["data"] == "23"
    assert second["found"] == sorted([*FILLED, "new.txt"])


def a_file(folder: Path) -> None:
    (folder / "report.md").write_text("of a run")


def another_content(folder: Path) -> None:
    (folder / "data.csv").write_text("3")


def other_rights_of_a_file(folder: Path) -> None:
    (folder / "data.csv").chmod(0o644)


def other_rights_of_a_folder(folder: Path) -> None:
    (folder / "src").chmod(0o755)


def other_rights_of_the_whole(folder: Path) -> None:
    folder.chmod(0o755)


def other_rights_of_the_storage(folder: Path) -> None:
    (folder / ".storage").chmod(0o777)


def a_second_name_of_a_file(folder: Path) -> None:
    os.link(folder / "data.csv", folder / ".tmp" / "held")


def a_link(folder: Path) -> None:
    (folder / "link").symlink_to("data.csv")


def a_link_in_place_of_the_storage(folder: Path) -> None:
    (folder / ".storage").rmdir()
    (folder / ".storage").symlink_to("/")


def an_empty_folder(folder: Path) -> None:
    (folder / "src" / "empty").mkdir()


def a_cache(folder: Path) -> None:
    (folder / "src" / "__pycache__").mkdir()


def files_of_a_cache_that_the_project_has(folder: Path) -> None:
    (folder.parent / "project" / ".cache").mkdir()
    written(folder, {".cache/secret": "of a run"})


def a_folder_below_too_many(folder: Path) -> None:
    for place in (folder.parent / "project", folder):
        for depth in range(DEEPEST + 2):
            place.joinpath(*["d"] * (depth + 1)).mkdir(mode=0o700)


def an_executable_bit(folder: Path) -> None:
    (folder / "data.csv").chmod(0o700)


def a_folder_of_programs(folder: Path) -> None:
    (folder / ".config").mkdir()


def a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


@pytest.fixture
def filled(tmp_path: Path) -> tuple[Path, Path]:
    """A project, and a folder that a run of it has."""
    project, folder = tmp_path / "project", tmp_path / "folder"
    (project / "src").mkdir(parents=True)
    (project / "data.csv").write_text("1,2")
    (project / "src" / "work.py").write_text("pass")
    for made in (folder, folder / ".tmp", folder / ".storage"):
        made.mkdir(mode=0o700)
    fill(str(project), str(folder))
    return project, folder


async def is_ready(filled: tuple[Path, Path], *, last: bool = True, reuse: bool = True) -> bool:
    project, folder = filled
    with closing(RunFolder(folder, None, project, reuse=reuse)) as opened:
        await opened.scan(LIMITS, last=last)
        return opened.is_ready


@pytest.mark.parametrize(
    "deed",
    [
        a_file,
        another_content,
        other_rights_of_a_file,
        other_rights_of_a_folder,
        other_rights_of_the_whole,
        other_rights_of_the_storage,
        a_second_name_of_a_file,
        a_link,
        a_link_in_place_of_the_storage,
        an_empty_folder,
        a_cache,
        files_of_a_cache_that_the_project_has,
        a_folder_below_too_many,
        an_executable_bit,
        a_folder_of_programs,
        a_pipe,
    ],
)
async def test_a_folder_in_which_a_run_left_something_is_not_ready(
    filled: tuple[Path, Path], deed: Callable[[Path], None]
) -> None:
    deed(filled[1])
    assert not await is_ready(filled)


async def test_a_folder_that_had_many_entries_is_not_ready(
    filled: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "LARGEST_FOLDER", 0)
    assert not await is_ready(filled)


async def test_temporary_files_are_removed_and_a_missing_file_or_folder_does_not_matter(
    filled: tuple[Path, Path],
) -> None:
    project, folder = filled
    below = folder / ".tmp" / "folder" / "below"
    below.mkdir(parents=True)
    (below / "file").write_text("of a run")
    (folder / ".tmp" / "folder").chmod(0)
    (folder / ".storage").rmdir()
    (folder / "data.csv").unlink()
    assert await is_ready(filled)
    assert sorted(path.name for path in folder.rglob("*")) == [".tmp", "src", "work.py"]
    fill(str(project), str(folder), refresh=True)
    assert (folder / "data.csv").read_text() == "1,2"


async def test_before_the_end_of_a_run_and_without_reuse_nothing_is_removed(filled: tuple[Path, Path]) -> None:
    (filled[1] / ".tmp" / "file").write_text("of a run")
    assert not await is_ready(filled, last=False)
    assert not await is_ready(filled, reuse=False)
    assert (filled[1] / ".tmp" / "file").exists()


async def test_the_end_of_a_run_does_not_wait_for_long_until_its_folder_is_empty(
    filled: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "EMPTYING", -1)
    written(filled[1], {".tmp/file": "of a run"})
    assert not await is_ready(filled)


async def test_a_folder_into_which_a_thread_may_still_write_is_not_ready(
    filled: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    project, folder = filled
    with closing(RunFolder(folder, None, project, reuse=True)) as opened:
        with monkeypatch.context() as slow:
            slow.setattr(run_folder, "SECONDS", 0)
            with pytest.raises(TimeoutError):
                await opened.remove("nothing")
        await opened.scan(LIMITS, last=True)
        assert not opened.is_ready


async def test_a_folder_that_can_not_be_emptied_is_not_ready(
    filled: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise PermissionError(1, "not permitted")

    (filled[1] / ".tmp" / "file").write_text("of a run")
    monkeypatch.setattr("windlass.removal.os.unlink", failing)
    assert not await is_ready(filled)


def test_the_oldest_of_too_many_emptied_folders_is_removed(tmp_path: Path) -> None:
    with Scratch(tmp_path / "runs") as scratch:
        for number in range(MOST_EMPTIED + 3):
            assert scratch.keep_emptied(scratch.folder("k"), number)
        kept = [scratch.run_folder(None, number) for number in range(3, MOST_EMPTIED + 3)]
        assert all(folder.is_dir() for folder in kept)
        assert len(set(kept)) == MOST_EMPTIED


def test_a_folder_that_no_run_uses_is_removed(tmp_path: Path) -> None:
    with Scratch(tmp_path / "runs") as scratch:
        assert scratch.keep_emptied(scratch.folder("k"), "key")
        assert scratch.drop_emptied()
        assert not scratch.drop_emptied(0)
        assert scratch.run_folder(None, "key").is_dir()


async def test_a_runner_that_runs_nothing_keeps_no_folder(
    bench: Bench, project: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.runner.runner.EMPTIED_SECONDS", 0.1)
    monkeypatch.setattr(Scratch, "drop_emptied", partialmethod(Scratch.drop_emptied, 0))
    await run(bench, project)
    async with asyncio.timeout(DEADLINE):
        while folders_with_copies(scratch):  # noqa: ASYNC110 - nothing tells of the removal
            await asyncio.sleep(0.01)


def test_an_emptied_folder_that_was_removed_is_not_used(tmp_path: Path) -> None:
    with Scratch(tmp_path / "runs") as scratch:
        folder = scratch.folder("k")
        assert scratch.keep_emptied(folder, "key")
        (renamed,) = (tmp_path / "runs").glob("r-*/k*")
        renamed.rmdir()
        assert scratch.run_folder(None, "key").is_dir()
        assert not scratch.keep_emptied(folder, "key")

"""The files of a project in the working folders of its runs."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import crew_project, flow_project, one_task
from projects_for_tests.making import function_project, written
from windlass_child.protocol import working_folder
from windlass_child.protocol.messages import Inspected, Project, Succeeded
from windlass_child.protocol.working_folder import MOST_EXAMINED, fill, has_files, is_unchanged

if TYPE_CHECKING:
    from projects_for_tests.driver import DrivenZygote

FILES = {"data.csv": "1,2", "src/prompts/hello.md": "Say hello.", "knowledge/facts.txt": "Parrots talk."}


def filled(project: Path, target: Path) -> set[str]:
    target.mkdir()
    fill(str(project), str(target))
    return {path.relative_to(target).as_posix() for path in target.rglob("*") if not path.is_dir()}


def test_files_are_copied_and_a_changed_copy_leaves_the_project_as_it_is(tmp_path: Path) -> None:
    project, target = written(tmp_path / "project", FILES), tmp_path / "run"
    assert filled(project, target) == FILES.keys()
    (target / "data.csv").write_text("3,4")
    assert (project / "data.csv").read_text() == "1,2"
    assert not (target / "data.csv").is_symlink()


def test_copies_can_be_told_from_files_that_the_run_wrote(tmp_path: Path) -> None:
    project, target = written(tmp_path / "project", FILES), tmp_path / "run"
    filled(project, target)
    (target / "data.csv").write_text("1,3")
    os.utime(target / "data.csv", (2_000_000_000, 2_000_000_000))
    (target / "report.md").write_text("Hello.")
    (target / "other.csv").symlink_to("data.csv")
    names = (*FILES, "report.md", "other.csv")
    unchanged = {name for name in names if is_unchanged(str(project), name, (target / name).lstat())}
    assert unchanged == {"src/prompts/hello.md", "knowledge/facts.txt"}
    assert not is_unchanged(str(project), "nul\0", (target / "data.csv").lstat())


def test_a_folder_with_unchanged_copies_has_no_files_of_the_run(tmp_path: Path) -> None:
    project, target = written(tmp_path / "project", FILES), tmp_path / "run"
    filled(project, target)
    (target / "other.csv").symlink_to("data.csv")
    (target / "src" / "empty").mkdir()
    written(target, dict.fromkeys((".cache/b", "src/.cache/c", "src/__pycache__/d", "e.pyc"), "of a program"))
    assert not has_files(str(project), str(target))


@pytest.mark.parametrize(
    "name", ["report.md", "data.csv", "src/prompts/hello.md", "new/folder/a", ".hidden", "src/.tmp/a"]
)
def test_a_folder_with_a_new_or_changed_file_has_files_of_the_run(tmp_path: Path, name: str) -> None:
    project, target = written(tmp_path / "project", FILES), tmp_path / "run"
    filled(project, target)
    written(target, {name: "written by the run"})
    assert has_files(str(project), str(target))


def test_a_folder_that_is_large_or_unreadable_may_have_files_of_the_run(tmp_path: Path) -> None:
    project, target = tmp_path / "project", tmp_path / "run"
    written(project, dict.fromkeys(map(str, range(MOST_EXAMINED)), "of the project"))
    filled(project, target)
    assert not has_files(str(project), str(target))
    (target / "one more").mkdir()
    assert has_files(str(project), str(target))
    assert has_files(str(project), str(tmp_path / "missing"))
    assert has_files(str(project), f"{target}/{'x' * 300}")


def test_environments_caches_and_names_with_a_dot_are_left_out(tmp_path: Path) -> None:
    names = (".env", ".git/config", ".venv/bin/python", "venv/x", "__pycache__/a.pyc", "b.pyc", "node_modules/a/b.js")
    assert filled(written(tmp_path / "project", dict.fromkeys(names, "")), tmp_path / "run") == set()


def test_large_files_and_those_beyond_the_limit_are_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_folder, "LARGEST_COPY", 100)
    monkeypatch.setattr(working_folder, "MOST_BYTES", 250)
    project = written(tmp_path / "project", {"a": "x" * 100, "b": "x" * 100, "c": "x" * 100, "d": "x" * 101})
    target = tmp_path / "run"
    assert filled(project, target) == {"a", "b", "c", "d"}
    assert {name for name in "abcd" if (target / name).is_symlink()} == {"c", "d"}
    assert (target / "c").read_text() == "x" * 100


def test_a_folder_with_too_many_files_is_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_folder, "MOST_ENTRIES", 6)
    project = written(tmp_path / "project", {f"many/{number}": "" for number in range(5)} | {"few/1": "", "few/2": ""})
    target = tmp_path / "run"
    filled(project, target)
    assert ((target / "few").is_symlink(), (target / "many").is_symlink()) == (False, True)
    assert len(list((target / "many").iterdir())) == 5


def test_no_more_entries_are_made_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_folder, "MOST_ENTRIES", 10)
    project = written(tmp_path / "project", {f"{number}.txt": "" for number in range(50)})
    assert len(filled(project, tmp_path / "run")) == 10


def test_a_link_out_of_the_project_is_made_again_and_not_followed(tmp_path: Path) -> None:
    outside = written(tmp_path / "outside", {"secret.txt": "s", "folder/deep.txt": "d"})
    project, target = written(tmp_path / "project", {"real/a.txt": "a"}), tmp_path / "run"
    (project / "file").symlink_to("../outside/secret.txt")
    (project / "folder").symlink_to(outside / "folder")
    (project / "inside").symlink_to("real")
    (project / "gone").symlink_to("nowhere")
    (project / "self").symlink_to("self")
    filled(project, target)
    assert (target / "file").readlink() == outside / "secret.txt"
    assert (target / "folder").readlink() == outside / "folder"
    assert (target / "inside").readlink() == Path("real")
    (target / "inside" / "a.txt").write_text("b")
    assert (project / "real" / "a.txt").read_text() == "a"


def test_pipes_and_projects_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    project = written(tmp_path / "project", {"a.txt": "a", "closed/b.txt": "b"})
    os.mkfifo(project / "pipe")
    assert filled(project, tmp_path / "run") == {"a.txt", "closed/b.txt"}
    assert filled(tmp_path / "missing", tmp_path / "other") == set()


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every file")
def test_files_that_can_not_be_read_are_left_out(tmp_path: Path) -> None:
    project = written(tmp_path / "project", {"a.txt": "a", "closed.txt": "b"})
    (project / "closed.txt").chmod(0)
    assert filled(project, tmp_path / "run") == {"a.txt"}


@pytest.mark.parametrize(("error", "is_link"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_no_copy_is_cut_off_when_its_write_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, is_link: bool
) -> None:
    write = os.write

    def fail_in_the_middle(file: int, data: bytes) -> int:
        if data == b"34":
            raise OSError(error, os.strerror(error))
        return write(file, data[:2])

    project, target = written(tmp_path / "project", {"a.txt": "1234"}), tmp_path / "run"
    monkeypatch.setattr(os, "write", fail_in_the_middle)
    found = filled(project, target)
    monkeypatch.undo()
    assert found == ({"a.txt"} if is_link else set())
    assert (target / "a.txt").is_symlink() is is_link


def test_a_project_that_holds_the_working_folder_is_not_copied_into_itself(tmp_path: Path) -> None:
    project = written(tmp_path / "project", {"a.txt": "a", "home/b.txt": "b"})
    assert filled(project, project / "home" / "run") == {"a.txt"}


READING = 'DATA = [open(name).read() for name in ("data.csv", "src/prompts/hello.md", "knowledge/facts.txt")]\n'


@pytest.mark.xdist_group("crewai")
@pytest.mark.parametrize("kind", ["crew", "flow"])
def test_files_are_there_before_modules_are_imported(zygote: DrivenZygote, tmp_path: Path, kind: str) -> None:
    flow = (
        READING
        + "class Work(Flow):\n    _skip_auto_memory = True\n    @start()\n    def one(self):\n        return DATA[0]\n"
    )
    made = {"crew": (crew_project, READING + one_task(), "work.crew"), "flow": (flow_project, flow, "main")}
    make, code, entrypoint = made[kind]
    project = Project(kind, str(written(make(tmp_path / "project", code), FILES)), entrypoint)
    inspecting = zygote.fork()
    inspecting.inspect(project, tmp_path / "inspection")
    assert isinstance(inspecting.answer(), Inspected)
    assert isinstance(zygote.run(project, tmp_path).answer(), Succeeded)


@pytest.mark.xdist_group("crewai")
def test_a_run_that_writes_over_a_file_changes_its_own_copy(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = 'def run():\n    open("data.csv", "a").write(",3")\n    return open("data.csv").read()\n'
    root = written(function_project(tmp_path / "project", code), FILES)
    project = Project("function", str(root), "work:run")
    for number in range(2):
        answer = zygote.run(project, tmp_path / str(number)).answer()
        assert isinstance(answer, Succeeded)
        assert answer.output == "1,2,3"
    assert (root / "data.csv").read_text() == "1,2"

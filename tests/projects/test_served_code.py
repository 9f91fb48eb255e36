from __future__ import annotations

import os
from pathlib import Path

import pytest

from projects_for_tests.making import written
from windlass.projects import ServedCode, digest, served_code
from windlass.projects.served_code import copied

pytestmark = pytest.mark.unit


FILES = {
    "pyproject.toml": "", "src/tea/crew.py": "old", "data/leaf.bin": "x" * 100, "tea.db": "rows", ".env": "KEY=1",
    ".venv/bin/python": "", "ignored/big.txt": "b",
}  # fmt: skip


def test_files_that_count_are_copied_and_all_others_are_links(tmp_path: Path) -> None:
    root, target = written(tmp_path / "root", FILES), tmp_path / "copy"
    (root / "gone").symlink_to("nowhere")
    (root / "linked").symlink_to("src/tea")
    (root / "empty").mkdir()
    assert copied(root, target, ["ignored"], digest(root, ["ignored"]))
    links = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_symlink()}
    assert links == {"tea.db", ".venv", "ignored", "gone", "empty"}
    assert not (target / ".env").exists(), "the server reads it in the project"
    written(root, {"src/tea/crew.py": "broken", "tea.db": "more rows"})
    assert (target / "src/tea/crew.py").read_text() == (target / "linked/crew.py").read_text() == "old"
    assert (target / "tea.db").read_text() == "more rows", "data goes on where it is"
    assert (target / "gone").readlink() == Path("nowhere")


def test_large_files_are_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_code, "LARGEST_FILE", 50)
    root, target = written(tmp_path / "root", FILES), tmp_path / "copy"
    assert copied(root, target, [], digest(root))
    assert (target / "data/leaf.bin").readlink() == root / "data/leaf.bin"
    assert not (target / "src/tea/crew.py").is_symlink()


def test_files_that_have_changed_since_they_were_loaded_are_not_kept(tmp_path: Path) -> None:
    root = written(tmp_path / "root", FILES)
    state = digest(root)
    written(root, {"src/tea/crew.py": "broken"})
    assert not copied(root, tmp_path / "copy", [], state)


def test_a_project_with_too_many_files_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_code, "MOST_FILES", 2)
    root = written(tmp_path / "root", FILES)
    assert not copied(root, tmp_path / "copy", [], digest(root))
    assert not (tmp_path / "copy").exists()


def test_a_pipe_in_the_project_blocks_nobody(tmp_path: Path) -> None:
    root = written(tmp_path / "root", FILES)
    os.mkfifo(root / "pipe.py")
    assert copied(root, tmp_path / "copy", [], digest(root))


def test_copies_for_another_user_open_no_file_that_this_user_can_not_read(tmp_path: Path) -> None:
    files = {"crew.py": "", "keys.py": "KEY = 1", "closed/deep/notes.py": "", "open/notes.py": ""}
    root, target = written(tmp_path / "root", files), tmp_path / "copy"
    (root / "keys.py").chmod(0o600)
    (root / "closed").chmod(0o700)
    outside = written(tmp_path / "outside", {"private/own.py": ""})
    (outside / "private").chmod(0o700)
    (root / "own.py").symlink_to(outside / "private" / "own.py")
    assert copied(root, target, [], digest(root), for_another_user=True)
    assert {path.name for path in target.rglob("*") if path.is_symlink()} == {"keys.py", "closed", "own.py"}
    assert copied(root, tmp_path / "own", [], digest(root))
    assert not (tmp_path / "own" / "keys.py").is_symlink()
    assert (tmp_path / "own" / "keys.py").stat().st_mode & 0o777 == 0o600, "a copy has the rights of the file"
    assert copied(root, tmp_path / "all", [], digest(root), open_all=True)
    assert (tmp_path / "all" / "keys.py").stat().st_mode & 0o777 == 0o644


def test_a_copy_that_no_run_used_may_be_removed(tmp_path: Path) -> None:
    code, root = ServedCode(), tmp_path / "root"
    code.hold(root, tmp_path / "unused")
    assert not code.may_remove(tmp_path / "unused"), "the next run starts from it"
    code.release(root)
    assert code.may_remove(tmp_path / "unused")
    code.hold(root, tmp_path / "used")
    code.place(root)
    code.release(root)
    assert not code.may_remove(tmp_path / "used")


def test_runs_start_from_the_copy_until_it_is_released(tmp_path: Path) -> None:
    code, root = ServedCode(), tmp_path / "root"
    assert code.place(root) == root
    code.hold(root, tmp_path / "copy")
    assert (code.place(root), code.place(tmp_path)) == (tmp_path / "copy", tmp_path)
    code.release(root)
    code.release(root)
    assert code.place(root) == root

"""Snapshots of projects: which files they have, and that the same files have the same digest everywhere."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from projects.archives import CREW, LINK, names, zipped
from projects_for_tests.making import written
from windlass.errors import ProjectError
from windlass.projects import archive
from windlass.projects.snapshot import accept, digest_of, pack, unpack

if TYPE_CHECKING:
    from pathlib import Path

SECRETS = {
    ".env": "KEY=1", ".env.local": "KEY=1", "keys/server.pem": "-", "keys/ID_RSA": "-", "credentials.json": "{}",
    ".aws/config": "-", ".netrc": "-",
}  # fmt: skip
GENERATED = {
    ".venv/bin/python": "",
    "__pycache__/work.cpython-311.pyc": "",
    "node_modules/a/b.js": "",
    ".git/config": "",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return written(tmp_path / "project", {**CREW, "data/towns.csv": "a,b\n", ".env.example": "KEY="})


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


@pytest.fixture
def work_tree(project: Path) -> Path:
    """It ignores out/, tracks a file in there, and has a file that git does not track yet and one that was deleted."""
    written(project, {".gitignore": "out/\n*.log\n", "out/kept.txt": "", "gone.txt": ""})
    git(project, "init", "--quiet")
    git(project, "add", "--force", ".gitignore", "work.py", "out/kept.txt", "gone.txt")
    written(project, {"out/other.txt": "", "run.log": ""})
    (project / "gone.txt").unlink()
    return project


CONTENT = [".env.example", "data/towns.csv", "pyproject.toml", "work.py"]


def test_a_project_is_the_same_after_it_was_packed_sent_and_unpacked(project: Path, tmp_path: Path) -> None:
    (project / "data" / "towns.csv").chmod(0o755)
    (project / "latest.csv").symlink_to("data/towns.csv")
    (project / "all").symlink_to("data")
    packed = pack(project, tmp_path / "packed.zip")
    accepted = accept(packed.file, tmp_path / "accepted.zip")
    assert (accepted.digest, accepted.files, accepted.left_out) == (packed.digest, 6, ())
    assert accepted.size == accepted.file.stat().st_size
    place = tmp_path / "place"
    assert unpack(accepted.file, place) == digest_of(place) == packed.digest
    assert (place / "work.py").read_text() == CREW["work.py"]
    assert (place / "all" / "towns.csv").read_text() == "a,b\n"
    assert (place / "latest.csv").readlink().name == "towns.csv"
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in place.rglob("*") if not path.is_symlink()}
    assert modes == {
        "data": 0o555, "towns.csv": 0o555, "work.py": 0o444, "pyproject.toml": 0o444, ".env.example": 0o444
    }  # fmt: skip
    assert stat.S_IMODE(place.stat().st_mode) == 0o555


def test_the_digest_is_that_of_the_files_and_not_of_the_zip(project: Path, tmp_path: Path) -> None:
    first = pack(project, tmp_path / "1.zip")
    for path in project.rglob("*"):
        os.utime(path, (0, 0))
    assert pack(project, tmp_path / "2.zip").digest == first.digest
    assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()
    files = {path.relative_to(project).as_posix(): path.read_bytes() for path in project.rglob("*") if path.is_file()}
    other = zipped(tmp_path / "other.zip", dict(reversed(files.items())))
    assert accept(other, tmp_path / "3.zip").digest == first.digest


@pytest.mark.parametrize("change", ["content", "name", "mode", "link"])
def test_each_change_of_a_file_changes_the_digest(project: Path, tmp_path: Path, change: str) -> None:
    before = pack(project, tmp_path / "1.zip").digest
    file = project / "work.py"
    match change:
        case "content":
            file.write_text("def run():\n    return 2\n")
        case "name":
            file.rename(project / "works.py")
        case "mode":
            file.chmod(0o755)
        case _:
            file.rename(project / "data" / "work.py")
            file.symlink_to("data/work.py")
    assert pack(project, tmp_path / "2.zip").digest != before


def test_files_that_git_ignores_are_left_out_and_those_that_it_tracks_are_not(work_tree: Path, tmp_path: Path) -> None:
    packed = pack(work_tree, tmp_path / "packed.zip")
    assert names(packed.file) == [CONTENT[0], ".gitignore", CONTENT[1], "out/kept.txt", *CONTENT[2:]]
    below = pack(work_tree / "data", tmp_path / "below.zip")
    assert names(below.file) == ["towns.csv"]


def test_a_repository_within_a_repository_is_packed_with_its_own_rules(work_tree: Path, tmp_path: Path) -> None:
    inner = written(work_tree / "inner", {"a.py": "", "b.tmp": "", ".gitignore": "*.tmp\n", ".env": ""})
    git(inner, "init", "--quiet")
    packed = pack(work_tree, tmp_path / "packed.zip")
    assert [name for name in names(packed.file) if "inner" in name] == ["inner/.gitignore", "inner/a.py"]
    assert packed.left_out == ("inner/.env",)


@pytest.mark.parametrize("reason", ["no git", "no work tree", "refused"])
def test_without_git_the_gitignore_files_count(
    work_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    if reason == "no git":
        monkeypatch.setattr(shutil, "which", lambda _: None)
    else:
        shutil.rmtree(work_tree / ".git")
    if reason == "refused":
        (work_tree / ".git").write_text("gitdir: /nowhere")
    written(
        work_tree,
        {"data/.gitignore": "*.csv\n!towns.csv\n/deep/\n", "data/x.csv": "", "data/deep/y": "", "z/deep/y": ""},
    )
    found = names(pack(work_tree, tmp_path / "packed.zip").file)
    assert found == [".env.example", ".gitignore", "data/.gitignore", *CONTENT[1:], "z/deep/y"]


@pytest.mark.parametrize("is_ignored", [True, False], ids=["ignored", "packed"])
@pytest.mark.parametrize("has_git", [True, False], ids=["git", "no git"])
def test_a_name_that_is_not_utf_8_is_left_out_by_the_rules_or_named(
    project: Path, tmp_path: Path, has_git: bool, is_ignored: bool
) -> None:
    written(project, {".gitignore": "\ufeffdata/caf?.csv\n" if is_ignored else "out/\n"})
    (project / "data" / os.fsdecode(b"caf\xe9.csv")).touch()
    (project / os.fsdecode(b".env.caf\xe9")).touch()
    if has_git:
        git(project, "init", "--quiet")
    if is_ignored:
        packed = pack(project, tmp_path / "packed.zip")
        assert names(packed.file) == sorted([".gitignore", *CONTENT])
        assert packed.left_out == (os.fsdecode(b".env.caf\xe9"),)
    else:
        words = r"^The file 'data/caf\\udce9\.csv' can't be deployed: its name has control characters, or is no UTF-8"
        with pytest.raises(ProjectError, match=words):
            pack(project, tmp_path / "packed.zip")


def test_patterns_of_the_caller_are_left_out(project: Path, tmp_path: Path) -> None:
    assert names(pack(project, tmp_path / "1.zip", ["data/*", "*.example"]).file) == CONTENT[2:]


def test_files_that_may_hold_secrets_are_left_out_by_both_sides(project: Path, tmp_path: Path) -> None:
    expected = tuple(sorted(SECRETS))
    packed = pack(written(project, {**SECRETS, **GENERATED}), tmp_path / "packed.zip")
    assert (names(packed.file), packed.left_out) == (CONTENT, expected)
    upload = zipped(
        tmp_path / "upload.zip", {**CREW, **SECRETS, **GENERATED, "data/towns.csv": "a,b\n", ".env.example": "KEY="}
    )
    accepted = accept(upload, tmp_path / "accepted.zip")
    assert (names(accepted.file), accepted.left_out) == (CONTENT, expected)
    assert accepted.digest == packed.digest


def test_the_only_folder_of_a_zip_is_the_root_but_not_of_one_that_windlass_made(tmp_path: Path) -> None:
    files = {f"project-1a2b3c/{name}": text for name, text in CREW.items()} | {"__MACOSX/._x": "", ".DS_Store": ""}
    accepted = accept(zipped(tmp_path / "github.zip", files, comment=b"1a2b3c"), tmp_path / "1.zip")
    assert names(accepted.file) == ["pyproject.toml", "work.py"]
    packed = pack(written(tmp_path / "project", {"src/work.py": ""}), tmp_path / "2.zip")
    again = accept(packed.file, tmp_path / "3.zip")
    assert (names(again.file), again.digest) == (["src/work.py"], packed.digest)


def test_a_link_to_nothing_is_left_out_and_so_is_one_to_a_secret(project: Path, tmp_path: Path) -> None:
    (project / ".env").write_text("KEY=1")
    (project / "here").symlink_to(".env")
    (project / "later").symlink_to("data/later.csv")
    packed = pack(project, tmp_path / "packed.zip")
    assert packed.left_out == (".env", "here", "later")
    upload = zipped(tmp_path / "upload.zip", {**CREW, "later": "nothing"}, modes={"later": LINK})
    assert accept(upload, tmp_path / "accepted.zip").left_out == ("later",)


def test_a_link_that_is_broken_only_after_others_were_left_out_is_kept_as_it_is(tmp_path: Path) -> None:
    """All that a snapshot has is unpacked, so that its digest is always that of its checkout."""
    project = written(tmp_path / "project", CREW)
    (project / "links").mkdir()
    (project / "links" / "gone").symlink_to("nothing")
    (project / "folder").symlink_to("links")
    packed = pack(project, tmp_path / "packed.zip")
    assert unpack(packed.file, tmp_path / "place") == digest_of(tmp_path / "place") == packed.digest


def test_a_project_that_packs_very_well_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "zeros").write_bytes(bytes(30 << 20))
    packed = pack(tmp_path / "project", tmp_path / "packed.zip")
    assert unpack(packed.file, tmp_path / "place") == packed.digest


@pytest.mark.parametrize("target", ["../other.py", "/etc/passwd", "data/../../other.py", "."])
def test_a_link_out_of_the_project_is_an_error_that_names_it(project: Path, tmp_path: Path, target: str) -> None:
    (project / "link.py").symlink_to(target)
    with pytest.raises(ProjectError, match=r"The file 'link.py' can't be deployed: it is a link"):
        pack(project, tmp_path / "packed.zip")
    assert not (tmp_path / "packed.zip").exists()


def test_pipes_and_sockets_are_no_files(project: Path, tmp_path: Path) -> None:
    os.mkfifo(project / "pipe")
    assert names(pack(project, tmp_path / "packed.zip").file) == CONTENT


def test_a_folder_without_files_and_one_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="no files"):
        pack(written(tmp_path / "empty", {".env": "KEY=1"}), tmp_path / "packed.zip")
    with pytest.raises(ProjectError, match="can't be read: No such file"):
        pack(tmp_path / "missing", tmp_path / "packed.zip")


def test_a_large_project_is_refused_with_its_largest_files(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "large.bin").write_bytes(os.urandom(300_000))
    monkeypatch.setattr("windlass.projects.snapshot.LARGEST", 1 << 18)
    with pytest.raises(ProjectError, match=r"too large: .* packed. Its largest files are 'large.bin' \(292 KB\)"):
        pack(project, tmp_path / "packed.zip")
    with pytest.raises(ProjectError, match="larger than 0 MB"):
        accept(zipped(tmp_path / "upload.zip", {"a": os.urandom(300_000)}), tmp_path / "accepted.zip")
    monkeypatch.setattr(archive, "LARGEST_UNPACKED", 1 << 18)
    with pytest.raises(ProjectError, match="0 MB unpacked"):
        pack(project, tmp_path / "packed.zip")
    monkeypatch.setattr(archive, "MOST_FILES", 4)
    with pytest.raises(ProjectError, match="more than 4 files"):
        pack(project, tmp_path / "packed.zip")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["project", "upload.zip"]


def test_a_file_that_grows_while_it_is_packed_is_bounded(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.projects.snapshot.LARGEST_UNPACKED", 10)
    with pytest.raises(ProjectError, match="more than 0 MB unpacked"):
        pack(project, tmp_path / "packed.zip")

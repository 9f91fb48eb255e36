"""A crew of another user leaves its folder so that its removal by root harms root's files, or never ends."""

from __future__ import annotations

import logging
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from attacks.other_user import CREW, as_root, run_as, running_as
from projects_for_tests.driver import until
from projects_for_tests.places import folder_for_all
from windlass import removal
from windlass.accounts import ROOT
from windlass.files import write_whole
from windlass.removal import remove
from windlass.runner.scratch import Scratch
from windlass_child.protocol.working_folder import WORK

if TYPE_CHECKING:
    from collections.abc import Iterator

NEST = """
import os, sys
for folder in sys.argv[2:]:
    os.chdir(folder)
    for _ in range(int(sys.argv[1])):
        os.mkdir("d")
        os.chdir("d")
"""

EXCHANGE = """
import ctypes, os, sys, time
library = ctypes.CDLL(None)
target, victim = sys.argv[1:]
os.umask(0)
def make(number):
    for name, path in ((f"{folder}/{number}", None), (f"{folder}/{number}-link", victim)):
        try:
            if path:
                os.symlink(path, name)
            else:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL, 0o777))
                os.chmod(name, 0o4777)
        except OSError:
            pass
print("begun", flush=True)
while True:
    folder = open(target).read()
    for number in range(100):
        one, other = f"{folder}/{number}".encode(), f"{folder}/{number}-link".encode()
        if library.renameat2(-100, one, -100, other, 2):
            make(number)
"""
"""Two of these exchange files that everyone may run as their owner for links, in the folder that a file names."""

DEEP, ROUNDS = 20_000, 12


FILL = """
import os, sys
os.chdir(sys.argv[1])
print("begun", flush=True)
while True:
    os.mkdir("d")
    os.chdir("d")
    for number in range(50):
        open(str(number), "w").close()
"""

CLOSED = """
import os, sys
os.chdir(sys.argv[1])
os.mkdir("closed")
open("closed/file", "w").close()
os.chmod("closed", 0)
os.mkdir("read-only")
os.mkdir("read-only/below")
os.chmod("read-only", 0o500)
os.mkfifo("pipe")
os.chmod(".", 0)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in memory: a busy disk takes milliseconds for each folder that is removed."""
    with folder_for_all(Path("/dev/shm")) as folder:
        yield folder


@pytest.fixture
def scratch(place: Path) -> Iterator[Scratch]:
    with Scratch(place / "runs") as scratch:
        yield scratch


@as_root
def test_a_file_that_is_exchanged_for_a_link_leaves_the_modes_of_roots_files_alone(
    scratch: Scratch, place: Path
) -> None:
    victim, target = place / "victim", place / "target"
    victim.write_text("root's")
    victim.chmod(0o600)
    folder = scratch.folder_for_crews("k", CREW) / WORK
    write_whole(target, str(folder), 0o644)
    with running_as(CREW, EXCHANGE, target, victim), running_as(CREW, EXCHANGE, target, victim):
        for _ in range(ROUNDS):
            if not folder.exists():
                folder = scratch.folder_for_crews("k", CREW) / WORK
                write_whole(target, str(folder), 0o644)
            until(lambda folder=folder: len(list(folder.iterdir())) > 100)  # type: ignore[misc]
            remove(folder)
            found = victim.stat()
            assert (oct(found.st_mode), found.st_uid, victim.read_text()) == ("0o100600", ROOT, "root's")


@as_root
def test_what_the_crews_user_may_not_remove_is_not_removed_by_root_either(
    scratch: Scratch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = scratch.folder_for_crews("k", CREW) / WORK
    others = folder / "others"
    others.mkdir(mode=0o700)
    (others / "file").write_text("root's")
    (folder / "own").write_text("the crew's")
    os.chown(folder / "own", CREW.uid, CREW.gid)
    with caplog.at_level(logging.WARNING):
        remove(folder)
    assert (others / "file").read_text() == "root's"
    assert list(folder.iterdir()) == [others]
    assert [record.msg for record in caplog.records] == ["folder.not_removed"]
    (others / "file").unlink()
    others.rmdir()


@as_root
def test_folders_that_are_nested_20000_deep_go_with_few_descriptors(scratch: Scratch) -> None:
    folder = scratch.folder_for_crews("k", CREW) / WORK
    run_as(CREW, NEST, str(DEEP), folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 12, hard))
    try:
        remove(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not folder.exists()


@as_root
def test_folders_that_a_crew_has_closed_go(scratch: Scratch) -> None:
    folder = scratch.folder_for_crews("k", CREW) / WORK
    run_as(CREW, CLOSED, folder)
    remove(folder)
    assert not folder.exists()


@as_root
def test_a_start_removes_what_a_killed_runner_left_of_another_user(place: Path) -> None:
    left = place / "runs" / "r-left"
    left.mkdir(parents=True)
    (place / "runs").chmod(0o711)
    left.chmod(0o711)
    folder = left / "k1"
    folder.mkdir()
    CREW.give(folder)
    run_as(CREW, NEST, "1200", folder)
    run_as(CREW, CLOSED, folder)
    with Scratch(place / "runs"):
        assert not left.exists()


@as_root
def test_a_folder_that_another_run_fills_without_end_is_left_in_time(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(removal, "SECONDS", 0.5)
    folder = scratch.folder_for_crews("k", CREW) / WORK
    with running_as(CREW, FILL, folder), caplog.at_level(logging.WARNING):
        remove(folder)
    monkeypatch.undo()
    assert all(record.msg == "folder.not_removed" for record in caplog.records)
    remove(folder)
    assert not folder.exists()


@as_root
def test_a_folder_whose_removal_takes_too_long_is_left(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(removal, "SECONDS", 0.0)
    folder = scratch.folder_for_crews("k", CREW) / WORK
    run_as(CREW, NEST, "100", folder)
    with caplog.at_level(logging.WARNING):
        remove(folder)
    assert [record.msg for record in caplog.records] == ["folder.not_removed"]
    assert (folder / "d").exists()
    monkeypatch.undo()
    remove(folder)
    assert not folder.exists()


def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "file").touch()
    (tmp_path / "link").symlink_to("others")
    remove(tmp_path / "link")
    assert (tmp_path / "others" / "file").exists()

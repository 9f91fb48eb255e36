"""A crew leaves files in its working folder so that the server, which stores them, reads or writes others' files, runs
out of memory or time, or lists paths that harm whoever unpacks them.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from attacks.other_user import CREW, as_root, run_as, running_as
from projects_for_tests.places import folder_for_all
from windlass.files import write_whole
from windlass.kickoffs.files import CHUNK, FileLimits
from windlass.runner import run_folder
from windlass.runner.run_folder import RunFolder
from windlass.runner.scratch import Scratch
from windlass_child.protocol.working_folder import WORK

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMITS = FileLimits()
EXCHANGE = """
import os, sys
folder, victim = sys.argv[1:]
os.chdir(folder)
os.mkdir("out")
print("begun", flush=True)
while True:
    for name, target in (("file", victim), ("out/file", victim), ("below", os.path.dirname(victim))):
        open("new", "w").write("the crew's")
        os.rename("new", name) if name != "below" else os.unlink("new")
        os.path.islink(name) and os.unlink(name)
        os.symlink(target, "new")
        os.rename("new", name)
"""
"""Exchanges files for links to a file of root, and a folder for a link to its folder, without end."""


@pytest.fixture
def place() -> Iterator[Path]:
    with folder_for_all(Path("/dev/shm")) as folder:
        yield folder


@pytest.fixture
def folder(place: Path) -> Iterator[Path]:
    """The working folder of a run of the crews' user, or of this user without root."""
    account = CREW if os.geteuid() == 0 else None
    with Scratch(place / "runs") as scratch:
        yield scratch.folder_for_crews("k", account) / WORK


@pytest.fixture
def opened(folder: Path) -> Iterator[RunFolder]:
    account = CREW if os.geteuid() == 0 else None
    with closing(RunFolder(folder.parent, account, Path("/nowhere"))) as opened:
        yield opened


async def content(opened: RunFolder, path: str) -> bytes:
    scan = await opened.scan(LIMITS)
    return await opened.read(path, scan.files[path], 0, hashlib.sha256())


async def test_links_pipes_devices_and_sockets_are_no_files(folder: Path, opened: RunFolder, place: Path) -> None:
    (place / "secret").write_text("root's")
    (folder / "link").symlink_to(place / "secret")
    (folder / "folder").symlink_to(place)
    (folder / "loop").symlink_to(".")
    os.mkfifo(folder / "pipe")
    if os.geteuid() == 0:
        os.mknod(folder / "device", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    assert (await opened.scan(LIMITS)).files == {}


@as_root
async def test_a_second_name_of_a_file_of_root_is_not_read(folder: Path, opened: RunFolder, place: Path) -> None:
    secret = place / "secret"
    write_whole(secret, "root's", 0o600)
    os.link(secret, folder / "mine")
    with pytest.raises(PermissionError):
        await content(opened, "mine")


@as_root
async def test_files_that_are_exchanged_for_links_while_they_are_read_reveal_nothing(
    folder: Path, opened: RunFolder, place: Path
) -> None:
    victim = place / "victim"
    victim.write_text("root's")
    with running_as(CREW, EXCHANGE, folder, victim):
        for _ in range(60):
            scan = await opened.scan(LIMITS)
            for path, stamp in scan.files.items():
                try:
                    found = await opened.read(path, stamp, 0, hashlib.sha256())
                except OSError:
                    continue
                assert b"root's" not in found
    assert "below/victim" not in scan.files


async def test_a_file_that_was_replaced_after_the_scan_is_not_read(folder: Path, opened: RunFolder) -> None:
    (folder / "file").write_text("first")
    stamp = (await opened.scan(LIMITS)).files["file"]
    (folder / "other").write_text("second")
    (folder / "other").rename(folder / "file")
    with pytest.raises(OSError, match="replaced"):
        await opened.read("file", stamp, 0, hashlib.sha256())


async def test_a_file_that_grows_after_the_scan_is_read_to_its_scanned_size(folder: Path, opened: RunFolder) -> None:
    (folder / "file").write_text("12345")
    stamp = (await opened.scan(LIMITS)).files["file"]
    with (folder / "file").open("a") as file:
        file.write("6" * CHUNK)
    assert await opened.read("file", stamp, 0, hashlib.sha256()) == b"12345"
    assert await opened.read("file", stamp, 5, hashlib.sha256()) == b""


async def test_a_sparse_file_of_a_terabyte_is_left_out_unread(folder: Path, opened: RunFolder) -> None:
    (folder / "sparse").touch()
    os.truncate(folder / "sparse", 1 << 40)
    scan = await opened.scan(LIMITS)
    assert scan.files == {}
    assert "sparse (it has 1 TB" in scan.left_out.words() or "sparse (it has 1024" in scan.left_out.words()


async def test_a_folder_with_more_files_than_are_looked_at_ends_the_scan(
    folder: Path, opened: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "MOST_EXAMINED", 50)
    for number in range(80):
        (folder / str(number)).touch()
    scan = await opened.scan(LIMITS)
    assert (len(scan.files), scan.whole) == (50, False)
    assert "more than 50 files and folders" in scan.left_out.words()


async def test_folders_that_are_nested_without_end_are_left(folder: Path, opened: RunFolder) -> None:
    here = folder
    for _ in range(40):
        here /= "d"
    here.mkdir(parents=True)
    (here / "file").touch()
    (folder / "file").touch()
    scan = await opened.scan(LIMITS)
    assert list(scan.files) == ["file"]
    assert "more than 20 folders above it" in scan.left_out.words()


@as_root
async def test_folders_that_the_crew_has_closed_are_left(folder: Path, opened: RunFolder) -> None:
    run_as(CREW, "import os, sys; os.chdir(sys.argv[1]); os.mkdir('closed', 0); os.chmod('.', 0)", folder)
    scan = await opened.scan(LIMITS)
    assert scan.files == {}
    assert "the working folder (it can't be opened: Permission denied)" in scan.left_out.words()
    assert not scan.whole


@as_root
async def test_a_folder_whose_files_can_not_be_examined_does_not_count_as_empty(
    folder: Path, opened: RunFolder
) -> None:
    script = "import os, sys; os.chdir(sys.argv[1]); os.mkdir('out'); open('out/x', 'w'); os.chmod('out', 0o400)"
    run_as(CREW, script, folder)
    scan = await opened.scan(LIMITS)
    assert (scan.files, scan.whole) == ({}, False)


async def test_a_file_that_shrinks_after_the_scan_is_not_read(folder: Path, opened: RunFolder) -> None:
    (folder / "file").write_text("12345")
    stamp = (await opened.scan(LIMITS)).files["file"]
    os.truncate(folder / "file", 2)
    with pytest.raises(OSError, match="changed while it was read"):
        await opened.read("file", stamp, 0, hashlib.sha256())


async def test_a_thread_that_can_not_start_leaves_no_open_folder(
    opened: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(run_folder, "with_rights_of", refuse)
    os.close(before := os.dup(0))
    with pytest.raises(RuntimeError, match="new thread"):
        await opened.scan(LIMITS)
    os.close(after := os.dup(0))
    assert before == after


@pytest.mark.parametrize(
    "name",
    [
        b"a\nb",
        b"a\rb",
        b"a\x1b[2Jb",
        b"a\x7fb",
        b"a\\b",
        b"..\\..\\b",
        b"C:\\b",
        "a\N{RIGHT-TO-LEFT OVERRIDE}b".encode(),
        "a\N{RIGHT-TO-LEFT ISOLATE}b".encode(),
        "a\N{LINE SEPARATOR}b".encode(),
        "a\x85b".encode(),
        b"a\xff",
        b"\xc3(",
        b"\xed\xa0\x80",
    ],
)
async def test_names_that_deceive_people_and_programs_are_left_out(
    folder: Path, opened: RunFolder, name: bytes
) -> None:
    os.close(os.open(os.fsencode(folder) + b"/" + name, os.O_CREAT))
    scan = await opened.scan(LIMITS)
    assert scan.files == {}
    words = scan.left_out.words()
    assert "control characters, a backslash, or bytes that are not UTF-8" in words
    assert words.isprintable()


async def test_a_path_that_is_too_long_is_left_out(folder: Path, opened: RunFolder) -> None:
    here = folder
    for _ in range(5):
        here /= "n" * 250
    here.mkdir(parents=True)
    (here / "file").touch()
    scan = await opened.scan(LIMITS)
    assert scan.files == {}
    assert "more than 1024 bytes" in scan.left_out.words()
    assert len(scan.left_out.words()) < 500


@pytest.mark.parametrize(
    ("one", "other"),
    [("Report.md", "report.md"), ("out/a", "OUT"), ("caf\u00e9", "cafe\u0301"), ("A/x", "a/y"), ("STRASSE", "straße")],
)
async def test_paths_that_some_systems_take_for_one_are_stored_once(
    folder: Path, opened: RunFolder, one: str, other: str
) -> None:
    for name in (one, other):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    scan = await opened.scan(LIMITS)
    assert len(scan.files) == 1
    assert "only upper and lower case distinguish it" in scan.left_out.words()


@as_root
async def test_files_are_restored_through_no_link(folder: Path, opened: RunFolder, place: Path) -> None:
    (place / "victim").write_text("root's")
    (place / "victim").chmod(0o666)
    (folder / "file").symlink_to(place / "victim")
    (folder / "out").symlink_to(place)
    for path in ("file", "out/victim", "out/new"):
        for at in (0, 5):
            with pytest.raises(OSError, match=r"exists|Not a directory|Too many levels"):
                await opened.write(path, at, b"the crew's")
    assert (place / "victim").read_text() == "root's"
    assert not (place / "new").exists()


@as_root
async def test_restored_files_belong_to_the_crews_user(folder: Path, opened: RunFolder) -> None:
    await opened.write("out/file", 0, b"12345")
    await opened.write("out/file", 5, b"67")
    assert (folder / "out/file").read_bytes() == b"1234567"
    assert ((folder / "out").stat().st_uid, (folder / "out/file").stat().st_uid) == (CREW.uid, CREW.uid)

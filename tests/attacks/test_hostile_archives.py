"""Zips that are made to write outside of a checkout, to hide files, or to take the server's memory, disk or time."""

from __future__ import annotations

import os
import resource
import stat
import struct
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from faults.small_disk import needed_small_disk
from projects.archives import CREW, LINK, zipped
from windlass.errors import ProjectError
from windlass.projects import archive
from windlass.projects.snapshot import accept, unpack

if TYPE_CHECKING:
    from pathlib import Path


def refused(tmp_path: Path, files: dict[str, str | bytes], words: str, **modes: int) -> None:
    """Both the upload and, if it were in the database, the snapshot are refused, and nothing is left of it."""
    upload = zipped(tmp_path / "upload.zip", {**CREW, **files}, modes={name: modes["mode"] for name in files if modes})
    _refused(tmp_path, upload, words)


def _refused(tmp_path: Path, upload: Path, words: str) -> None:
    with pytest.raises(ProjectError, match=words):
        accept(upload, tmp_path / "accepted.zip")
    with pytest.raises(ProjectError, match=words):
        unpack(upload, tmp_path / "place")
    assert {path.name for path in tmp_path.iterdir()} == {"upload.zip"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("/etc/cron.d/x", "its path is absolute"),
        ("C:/x.py", "its path is absolute"),
        ("../x.py", r"an empty part, \. or \.\."),
        ("a/../../x.py", r"an empty part, \. or \.\."),
        ("a//x.py", "an empty part"),
        ("a/./x.py", "an empty part"),
        ("..\\x.py", "a backslash"),
        ("a\nb.py", "control characters"),
        ("a\u202eyp.b", "control characters"),
        ("aux.py", "reserves the name"),
        ("a/NUL", "reserves the name"),
        ("WORK.py", "differs from 'WORK.py' only in case|differs from 'work.py' only in case"),
        ("work.py/x", "it is also a folder"),
        ("/".join("a" * 41), "a path may have"),
        (f"{'a' * 256}.py", "a path may have"),
        ("/".join(["a" * 200] * 6), "a path may have"),
    ],
)
def test_a_name_that_no_source_may_have(tmp_path: Path, name: str, words: str) -> None:
    refused(tmp_path, {name: ""}, words)


def test_names_that_differ_only_in_unicode_form_and_folders_that_differ_in_case(tmp_path: Path) -> None:
    refused(tmp_path, {"caf\u00e9.py": "", "cafe\u0301.py": ""}, "only in case or Unicode form")
    refused(tmp_path, {"Tools/a.py": "", "tools/b.py": ""}, "only in case or Unicode form")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "upload.zip", "w") as upload:
        for text in ("good", "evil"):
            upload.writestr("work.py", text)
        upload.writestr("other.py", "")
    _refused(tmp_path, tmp_path / "upload.zip", "has it twice")


@pytest.mark.parametrize(
    "target", ["../..", "/etc/passwd", "data/../../x", "a\\b", "", "x" * 256, ".", "a\x00b", "link"]
)
def test_a_link_that_leads_elsewhere(tmp_path: Path, target: str) -> None:
    refused(tmp_path, {"link": target}, "it is a link", mode=LINK)


def test_the_target_of_a_link_is_not_read_if_it_is_too_long(tmp_path: Path) -> None:
    refused(tmp_path, {"link": "x" * (1 << 20)}, "it is a link to a path of more than 255 bytes", mode=LINK)


def test_links_that_lead_out_together_and_files_below_a_link(tmp_path: Path) -> None:
    refused(tmp_path, {"a/deep": "..", "out": "a/deep/../.."}, "it is a link", mode=LINK)
    refused(tmp_path, {"x": "y", "y": "x"}, "circle", mode=LINK)
    files = {**CREW, "data": "/etc", "data/passwd": "root::0:0"}
    upload = zipped(tmp_path / "upload.zip", files, modes={"data": LINK})
    _refused(tmp_path, upload, "it is also a folder")


def test_many_links(tmp_path: Path) -> None:
    chain = {f"link{number}": f"link{number + 1}" for number in range(400)}
    refused(tmp_path, dict(chain), "circle", mode=LINK)
    turns = "d/../" * 45
    refused(tmp_path, {f"l{number}": f"{turns}l{number + 1}" for number in range(900)}, "circle", mode=LINK)
    refused(tmp_path, {f"link{number}": "work.py" for number in range(1001)}, "symbolic links", mode=LINK)


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_a_special_file(tmp_path: Path, kind: int) -> None:
    refused(tmp_path, {"device": ""}, "special file", mode=kind | 0o666)


def test_setuid_and_world_writable_files_lose_these_rights(tmp_path: Path) -> None:
    upload = zipped(tmp_path / "upload.zip", {**CREW, "sh": "#!"}, modes={"sh": stat.S_IFREG | 0o6777})
    unpack(accept(upload, tmp_path / "accepted.zip").file, tmp_path / "place")
    assert stat.S_IMODE((tmp_path / "place" / "sh").stat().st_mode) == 0o555


def test_encrypted_members_and_other_methods(tmp_path: Path) -> None:
    upload = zipped(tmp_path / "upload.zip", CREW)
    whole = bytearray(upload.read_bytes())
    place = whole.index(b"PK\x01\x02")
    whole[place + 8] |= 1
    upload.write_bytes(whole)
    _refused(tmp_path, upload, "encrypted")
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(upload, "w", method) as other:
            other.writestr("work.py", "x" * 1000)
        _refused(tmp_path, upload, "another method than deflate")


def test_a_bomb_is_refused_by_the_sizes_that_it_declares(tmp_path: Path) -> None:
    upload = zipped(tmp_path / "upload.zip", {"zeros": bytes(30 << 20)})
    with pytest.raises(ProjectError, match="more than 200 times its size"):
        accept(upload, tmp_path / "accepted.zip")
    assert not (tmp_path / "accepted.zip").exists()


def test_a_bomb_that_declares_little_is_read_no_further_than_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = zipped(tmp_path / "upload.zip", {"zeros": bytes(30 << 20)})
    whole = bytearray(upload.read_bytes())
    place = whole.index(b"PK\x01\x02")
    struct.pack_into("<I", whole, place + 24, 1000)
    upload.write_bytes(whole)
    monkeypatch.setattr("windlass.projects.snapshot.LARGEST_UNPACKED", 2000)
    with pytest.raises(ProjectError, match="Bad CRC-32"):
        accept(upload, tmp_path / "accepted.zip")
    assert not (tmp_path / "accepted.zip").exists()


def test_members_that_share_their_content_count_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bomb of overlapping members: each of them is small, and all of them are large."""
    monkeypatch.setattr(archive, "LARGEST_UNPACKED", 1 << 20)
    content = os.urandom(1 << 18)
    refused(tmp_path, {f"part{number}": content for number in range(5)}, "1 MB unpacked")


def test_a_directory_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_MEMBERS", 10)
    refused(tmp_path, {f"part{number}": "" for number in range(11)}, "more than 10 files and folders")
    monkeypatch.setattr(archive, "LARGEST_DIRECTORY", 200)
    refused(tmp_path, {"x" * 200: ""}, "a list of files of more than")


def test_folders_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path of 1,000 bytes can name 39 folders, so that few files would make many of them."""
    monkeypatch.setattr(archive, "MOST_FOLDERS", 300)
    refused(tmp_path, {"/".join([str(number)] * 40): "" for number in range(10)}, "more than 300 folders")


def test_many_members_cost_little_memory(tmp_path: Path) -> None:
    """60,000 members are more than a source may have, and are counted before anything is made of them."""
    head = (
        struct.pack("<4sBBHHHHHIIIHHHHHII", b"PK\x01\x02", 20, 3, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    )
    directory = head * 300_000
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(directory), 0, 0)
    (tmp_path / "upload.zip").write_bytes(directory + end)
    code = "import resource, sys; from pathlib import Path; from windlass.projects.snapshot import accept\n"
    code += f"resource.setrlimit(resource.RLIMIT_AS, (400 << 20, {resource.RLIM_INFINITY}))\n"
    code += "accept(Path(sys.argv[1]), Path(sys.argv[2]))"
    order = [sys.executable, "-c", code, str(tmp_path / "upload.zip"), str(tmp_path / "accepted.zip")]
    done = subprocess.run(order, capture_output=True, text=True, check=False)
    assert "ProjectError: The source has more than 60,000 files and folders." in done.stderr


def test_uploads_that_break_off_or_are_damaged(tmp_path: Path) -> None:
    upload = zipped(tmp_path / "upload.zip", {**CREW, "data.bin": os.urandom(5000)})
    whole = upload.read_bytes()
    for part in (b"", b"PK", whole[: len(whole) // 2], whole[:-1], b"<html>502</html>"):
        upload.write_bytes(part)
        _refused(tmp_path, upload, "no zip file, or is incomplete")
    for place in range(0, len(whole), 97):
        upload.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            accept(upload, tmp_path / "accepted.zip")
        except ProjectError:
            assert not (tmp_path / "accepted.zip").exists()


def test_an_offset_that_no_file_has(tmp_path: Path) -> None:
    upload = zipped(tmp_path / "upload.zip", {"work.py": "x"})
    changed = bytearray(upload.read_bytes())
    struct.pack_into("<I", changed, changed.index(b"PK\x01\x02") + 42, 0xFFFFFFF0)
    upload.write_bytes(changed)
    with pytest.raises(ProjectError, match="can't be read"):
        accept(upload, tmp_path / "accepted.zip")


def test_a_full_disk_leaves_nothing_half(tmp_path: Path) -> None:
    upload = zipped(tmp_path / "upload.zip", {**CREW, "data.bin": os.urandom(3 << 20)})
    good = accept(upload, tmp_path / "accepted.zip")
    with needed_small_disk(tmp_path / "small", 2):
        with pytest.raises(ProjectError, match=r"accepted.zip can't be written: No space left.* Free space"):
            accept(upload, tmp_path / "small" / "accepted.zip")
        assert not list((tmp_path / "small").iterdir())
        with pytest.raises(ProjectError, match="place can't be written: No space left"):
            unpack(good.file, tmp_path / "small" / "place")


def test_names_of_other_programs(tmp_path: Path) -> None:
    """Several programs write UTF-8 and do not declare it, and a path that begins with `./`."""
    upload = zipped(tmp_path / "upload.zip", {"caf\u00e9.py": "1", "./work.py": ""})
    whole = upload.read_bytes().replace("caf\u00e9.py".encode(), b"caf\xc3\xa9.py")
    for mark in (b"PK\x01\x02", b"PK\x03\x04"):
        place = whole.index(mark)
        flags = place + (8 if mark == b"PK\x01\x02" else 6)
        whole = whole[:flags] + bytes([whole[flags], whole[flags + 1] & ~8]) + whole[flags + 2 :]
    upload.write_bytes(whole)
    unpack(accept(upload, tmp_path / "accepted.zip").file, tmp_path / "place")
    assert sorted(path.name for path in (tmp_path / "place").iterdir()) == ["caf\u00e9.py", "work.py"]

"""A file that is given for a backup, and grows without measure when it is read."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

import pytest

from windlass.embedded_postgres.backup_file import ABOUT, DUMP, KEY, BackupError, opened

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


TOLD = json.dumps(
    {
        "format": 1,
        "windlass": "1",
        "postgres": "18",
        "made_at": "",
        "migration": 1,
        "key_id": "a",
        "probe": "b",
    }
)
ZEROS = bytes(1 << 20)


def archive(file: Path, *, compressed: str = "", copies: int = 1, about: str = TOLD, key: bytes = b"") -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as made:
        made.writestr(ABOUT, about)
        kind = zipfile.ZIP_DEFLATED if compressed == DUMP else zipfile.ZIP_STORED
        with made.open(zipfile.ZipInfo(DUMP) if kind == zipfile.ZIP_STORED else deflated(DUMP), "w") as dump:
            for _ in range(copies):
                dump.write(ZEROS)
        if key:
            made.writestr(KEY, key, zipfile.ZIP_DEFLATED if compressed == KEY else zipfile.ZIP_STORED)
    return file


def deflated(name: str) -> zipfile.ZipInfo:
    found = zipfile.ZipInfo(name)
    found.compress_type = zipfile.ZIP_DEFLATED
    return found


def test_a_backup_as_it_is_written_is_opened(tmp_path: Path) -> None:
    with opened(archive(tmp_path / "backup.zip", key=b"a key")) as found:
        assert found.key == "a key"
        assert found.dump_size == len(ZEROS)


@pytest.mark.parametrize("member", [DUMP, KEY])
def test_a_member_that_grows_when_it_is_read_is_refused(tmp_path: Path, member: str) -> None:
    bomb = archive(tmp_path / "bomb.zip", compressed=member, copies=64, key=ZEROS)
    with pytest.raises(BackupError, match=f"is compressed in {member}"), opened(bomb):
        pass


def test_a_text_that_is_too_large_is_refused(tmp_path: Path) -> None:
    bomb = archive(tmp_path / "bomb.zip", about=TOLD + " " * (2 << 20))
    with pytest.raises(BackupError, match=r"backup\.json of .* is too large"), opened(bomb):
        pass


def test_more_members_than_a_backup_has_are_refused(tmp_path: Path) -> None:
    bomb = archive(tmp_path / "bomb.zip", key=b"a key")
    with zipfile.ZipFile(bomb, "a") as made:
        made.writestr("other", b"")
    with pytest.raises(BackupError, match="no backup of Windlass"), opened(bomb):
        pass


def test_two_members_of_the_same_bytes_are_refused(tmp_path: Path) -> None:
    bomb = archive(tmp_path / "bomb.zip")
    with zipfile.ZipFile(bomb, "a") as made:
        made.filelist.append(made.getinfo(DUMP))
        made.comment = b"so that the directory is written again"
    with pytest.raises(BackupError, match="no backup of Windlass"), opened(bomb):
        pass


def test_members_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    bomb = archive(tmp_path / "bomb.zip")
    with zipfile.ZipFile(bomb, "a") as made:
        shared = made.getinfo(DUMP)
        made.filelist += [shared] * 1000
        made.writestr("other", b"")
    with pytest.raises(BackupError, match="no backup of Windlass"), opened(bomb):
        pass

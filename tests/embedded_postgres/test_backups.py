"""A backup is whole or not there."""

from __future__ import annotations

import resource
import stat
import zipfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from embedded_postgres.backups import KICKOFFS, empty_home, ignored, kickoffs_in, restored, written
from embedded_postgres.served_database import serving
from windlass.administration.backups import backup, restore
from windlass.config import Settings
from windlass.embedded_postgres.backup_file import ABOUT, DUMP, KEY, BackupError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_it_is_for_its_owner_alone(made: Path) -> None:
    assert stat.S_IMODE(made.stat().st_mode) == 0o600


def test_a_file_that_is_there_is_replaced_only_when_forced(origin: Path, place: Path) -> None:
    file = place / "backup.zip"
    file.write_text("precious")
    with pytest.raises(BackupError, match="is there already"):
        written(origin, file)
    assert file.read_text() == "precious"
    written(origin, file, force=True)
    assert zipfile.is_zipfile(file)


def test_when_the_disk_is_full_nothing_is_left_and_the_old_file_stays(origin: Path, place: Path) -> None:
    folder = place / "full"
    folder.mkdir()
    file = folder / "backup.zip"
    file.write_text("the last one")
    with serving(origin), files_of_at_most(10_000), pytest.raises(BackupError, match="could not be written: File too"):
        written(origin, file, force=True)
    assert [path.name for path in folder.iterdir()] == ["backup.zip"]
    assert file.read_text() == "the last one"


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_folder_that_is_not_there_is_told(origin: Path, place: Path) -> None:
    with pytest.raises(BackupError, match="could not be written: No such file or directory"):
        written(origin, place / "nowhere" / "backup.zip")


def test_a_home_without_a_database_has_nothing_to_back_up(place: Path) -> None:
    with pytest.raises(BackupError, match="There is no database in"):
        written(empty_home(place), place / "backup.zip")
    assert not (place / "backup.zip").exists()


def test_the_key_is_in_it_only_when_asked_for(made: Path, made_with_key: Path, origin: Path) -> None:
    key = (origin / "master.key").read_bytes()
    assert zipfile.ZipFile(made).namelist() == [DUMP, ABOUT]
    assert zipfile.ZipFile(made_with_key).read(KEY) == key
    assert key.splitlines()[-1] not in made.read_bytes()


def test_the_database_may_be_in_use(origin: Path, place: Path, new_home: Path) -> None:
    with serving(origin):
        file = written(origin, place / "backup.zip")
    restored(new_home, file)
    assert kickoffs_in(new_home) == KICKOFFS


def test_progress_is_told(origin: Path, new_home: Path) -> None:
    heard: list[Any] = []
    file = new_home.parent / "told.zip"
    size = backup(Settings(home=origin), file, with_key=False, force=False, notify=ignored, written=heard.append)
    assert 0 < heard[-1] < size == file.stat().st_size
    heard.clear()
    restore(Settings(home=new_home), file, force=False, notify=ignored, read=lambda *pair: heard.append(pair))
    done, whole = heard[-1]
    assert done == whole > 0


def test_a_database_of_your_own_is_not_for_these_commands(made: Path, place: Path, new_home: Path) -> None:
    settings = Settings(home=new_home, database_url=SecretStr("postgresql://nowhere/"))
    with pytest.raises(BackupError, match="names a PostgreSQL of your own"):
        backup(settings, place / "backup.zip", with_key=False, force=False, notify=ignored, written=ignored)
    with pytest.raises(BackupError, match="names a PostgreSQL of your own"):
        restore(settings, made, force=False, notify=ignored, read=ignored)

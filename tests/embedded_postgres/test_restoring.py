"""What is restored is whole, or the home is as it was."""

from __future__ import annotations

import json
import shutil
import stat
import zipfile
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from embedded_postgres.backups import KICKOFFS, OTHER_KEY, about, empty_home, kickoffs_in, restored, rewritten
from embedded_postgres.served_database import keep, kept, serving
from windlass.embedded_postgres.backup_file import BackupError
from windlass.embedded_postgres.errors import HomeInUse
from windlass.store.migrate import known_migrations

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_backed_up_is_restored_elsewhere(made: Path, new_home: Path) -> None:
    assert restored(new_home, made) is None
    assert kickoffs_in(new_home) == KICKOFFS
    assert sorted(path.name for path in new_home.iterdir()) == ["master.key", "postgres", "server.lock"]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_one_that_was_cut_short_is_refused_before_anything_changes(made: Path, new_home: Path, share: float) -> None:
    cut = new_home.parent / "cut.zip"
    cut.write_bytes(made.read_bytes()[: int(made.stat().st_size * share)])
    with pytest.raises(BackupError, match="is no backup of Windlass, or it was cut short"):
        restored(new_home, cut)
    assert [path.name for path in new_home.iterdir()] == ["master.key"]


def test_one_with_a_wrong_byte_is_refused(made: Path, new_home: Path) -> None:
    damaged = new_home.parent / "damaged.zip"
    content = bytearray(made.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(BackupError, match=r"is damaged, in database.dump"):
        restored(new_home, damaged)


@pytest.mark.parametrize("content", [b"", b"a letter", b"PK\x03\x04"])
def test_another_file_is_refused(new_home: Path, content: bytes) -> None:
    other = new_home.parent / "other"
    other.write_bytes(content)
    with pytest.raises(BackupError, match="is no backup of Windlass"):
        restored(new_home, other)


def test_another_archive_is_refused(new_home: Path) -> None:
    other = new_home.parent / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("letter.txt", "Dear")
    with pytest.raises(BackupError, match="is an archive, but no backup of Windlass"):
        restored(new_home, other)


def test_a_file_that_is_not_there_is_told(new_home: Path) -> None:
    with pytest.raises(BackupError, match="There is no file"):
        restored(new_home, new_home / "backup.zip")


def test_one_of_another_format_is_refused(made: Path, new_home: Path) -> None:
    newer = rewritten(made, new_home.parent / "newer.zip", backup=json.dumps({**about(made), "format": 2}).encode())
    with pytest.raises(BackupError, match="has the format 2, which this Windlass doesn't know"):
        restored(new_home, newer)


def test_one_of_a_newer_release_is_refused(made: Path, new_home: Path) -> None:
    told = {**about(made), "migration": max(known_migrations()) + 1, "windlass": "9.9"}
    newer = rewritten(made, new_home.parent / "newer.zip", backup=json.dumps(told).encode())
    with pytest.raises(BackupError, match=r"was made by a newer Windlass \(9.9\)"):
        restored(new_home, newer)


def test_without_its_key_it_is_not_restored(made: Path, place: Path) -> None:
    home = empty_home(place)
    with pytest.raises(BackupError, match=f"needs the master key {about(made)['key_id']}"):
        restored(home, made)
    assert not (home / "master.key").exists()
    assert not (home / "postgres").exists()


def test_its_key_may_come_from_the_environment(made: Path, place: Path, origin: Path) -> None:
    key = (origin / "master.key").read_text().splitlines()[-1]
    home = empty_home(place)
    restored(home, made, master_key=SecretStr(f"{OTHER_KEY},{key}"))
    assert kickoffs_in(home) == KICKOFFS


def test_a_key_that_is_in_it_comes_with_it(made_with_key: Path, place: Path, origin: Path) -> None:
    home = empty_home(place)
    restored(home, made_with_key)
    assert (home / "master.key").read_bytes() == (origin / "master.key").read_bytes()
    assert stat.S_IMODE((home / "master.key").stat().st_mode) == 0o600


def test_another_key_that_is_there_is_put_aside_only_when_forced(made_with_key: Path, place: Path) -> None:
    home = empty_home(place)
    (home / "master.key").write_text(OTHER_KEY)
    (home / "master.key").chmod(0o600)
    with pytest.raises(BackupError, match="contains another one"):
        restored(home, made_with_key)
    restored(home, made_with_key, force=True)
    (aside,) = home.glob("master.key.before-*")
    assert aside.read_text() == OTHER_KEY


def test_a_database_that_is_there_is_put_aside_only_when_forced(made: Path, own_home: Path, origin: Path) -> None:
    shutil.copy2(origin / "master.key", own_home)
    with serving(own_home) as database:
        number = keep(database.url)
    with pytest.raises(BackupError, match=r"There is a database in .* already"):
        restored(own_home, made)
    with serving(own_home) as database:
        assert kept(database.url) == number
    aside = restored(own_home, made, force=True)
    assert aside is not None
    assert kickoffs_in(own_home) == KICKOFFS
    shutil.rmtree(own_home / "postgres")
    aside.rename(own_home / "postgres")
    with serving(own_home) as database:
        assert kept(database.url) == number


def test_while_a_server_runs_nothing_is_restored(made: Path, origin: Path) -> None:
    with serving(origin), pytest.raises(HomeInUse):
        restored(origin, made, force=True)
    assert kickoffs_in(origin) == KICKOFFS


def test_one_that_postgresql_refuses_changes_nothing(made: Path, new_home: Path) -> None:
    broken = rewritten(made, new_home.parent / "broken.zip", database=b"no dump of PostgreSQL" * 100_000)
    with pytest.raises(BackupError, match=r"pg_restore failed: .*input file does not appear to be a valid"):
        restored(new_home, broken)
    assert sorted(path.name for path in new_home.iterdir()) == ["master.key", "server.lock"]


def test_what_a_restoration_that_was_killed_left_is_in_nobodys_way(made: Path, new_home: Path) -> None:
    (new_home / "restoring" / "postgres" / "data").mkdir(parents=True)
    (new_home / "restoring" / "postgres" / "data" / "PG_VERSION").write_text("18\n")
    restored(new_home, made)
    assert kickoffs_in(new_home) == KICKOFFS
    assert not (new_home / "restoring").exists()

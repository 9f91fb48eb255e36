"""A backup is one zip archive. It holds a description, a dump in `pg_dump`'s own format,
and the master key if that was requested.

The archive's checksums reveal a damaged file. Its directory, which is at the end, is missing in a truncated file.
A zip archive can also be read, and its dump restored by hand, without Windlass.
"""

# See docs/decisions/store.md#a-backup-is-a-zip-with-the-output-of-pg_dump

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from windlass.errors import WindlassError
from windlass.files import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT = 1
ABOUT, DUMP, KEY = "backup.json", "database.dump", "master.key"
LARGEST = 1 << 20
"""Largest size in bytes of a member that is read as a whole, which is each but the dump."""
MOST_MEMBERS = 3
NO_BACKUP = "Give the complete, unchanged file that `windlass admin backup FILE` wrote."


class BackupError(WindlassError):
    """A backup can't be made or can't be used."""


@dataclass(frozen=True, slots=True)
class About:
    """The description of a backup.

    `migration` is the newest one of the release that made the backup. `key_id` names the master key. `probe` is a text
    that is sealed with that key.
    """

    windlass: str
    postgres: str
    made_at: str
    migration: int
    key_id: str
    probe: str


class BackupFile:
    """A backup whose checksums were verified."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, about: About) -> None:
        self.path = path
        self.about = about
        self._archive = archive

    @property
    def dump_size(self) -> int:
        return self._archive.getinfo(DUMP).file_size

    @property
    def key(self) -> str | None:
        """The text of the key file. None if the backup does not hold it."""
        return self._archive.read(KEY).decode() if KEY in self._archive.namelist() else None

    def dump(self) -> IO[bytes]:
        return self._archive.open(DUMP)


@contextmanager
def opened(path: Path) -> Iterator[BackupFile]:
    """Opens a backup and verifies the checksums of all members first. Raises BackupError."""
    try:
        with zipfile.ZipFile(path) as archive:
            _refuse_compression(path, archive)
            if damaged := archive.testzip():
                raise BackupError(f"The backup {path} is damaged, in {damaged}.", NO_BACKUP)
            yield BackupFile(path, archive, _about(path, archive))
    except zipfile.BadZipFile:
        raise BackupError(f"{path} is no backup of Windlass, or it was cut short.", NO_BACKUP) from None
    except FileNotFoundError:
        raise BackupError(f"There is no file {path}.", NO_BACKUP) from None
    except OSError as error:
        raise BackupError(f"The backup {path} can't be read: {error.strerror or error}.", NO_BACKUP) from error


def _refuse_compression(path: Path, archive: zipfile.ZipFile) -> None:
    """Raises BackupError for compressed members, since backups are written without compression.

    So the bytes that are read are never more than the size of the file.
    """
    members = archive.infolist()
    for one in members:
        if one.compress_type != zipfile.ZIP_STORED or one.file_size != one.compress_size:
            raise BackupError(f"{path} is compressed in {one.filename}. Backups are never compressed.", NO_BACKUP)
        if one.filename != DUMP and one.file_size > LARGEST:
            raise BackupError(f"{path} holds {one.filename} of {one.file_size} bytes, which is too large.", NO_BACKUP)
    if len(members) > MOST_MEMBERS or sum(one.file_size for one in members) > path.stat().st_size:
        raise BackupError(f"{path} is an archive, but no backup of Windlass.", NO_BACKUP)


def _about(path: Path, archive: zipfile.ZipFile) -> About:
    try:
        described: dict[str, Any] = json.loads(archive.read(ABOUT))
        archive.getinfo(DUMP)
        if (found := described.pop("format")) == FORMAT:
            return About(**described)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BackupError(f"{path} is an archive, but no backup of Windlass.", NO_BACKUP) from None
    raise BackupError(
        f"The backup {path} has the format {found}, which this Windlass doesn't know.",
        "Restore it with the version that made it, or a newer one.",
    )


class NewBackup:
    """A backup that is being written. It replaces the file at `path` only when all of it is on the disk."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive

    @contextmanager
    def dump(self) -> Iterator[IO[bytes]]:
        with self._archive.open(DUMP, "w", force_zip64=True) as member:
            yield member

    def add(self, about: About, key: str | None) -> None:
        self._archive.writestr(ABOUT, json.dumps({"format": FORMAT, **asdict(about)}, indent=2))
        if key is not None:
            self._archive.writestr(KEY, key)


@contextmanager
def writing(path: Path) -> Iterator[NewBackup]:
    """Writes a backup that only its owner can read. On failure raises BackupError and leaves no file behind."""
    try:
        draft, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        try:
            with os.fdopen(draft, "wb") as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                    yield NewBackup(path, archive)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise BackupError(
            f"The backup {path} could not be written: {error.strerror or error}.",
            "No part of it was kept. Choose a folder that this user may write to, with enough free space.",
        ) from error

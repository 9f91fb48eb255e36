"""A backup is one zip archive: what it says of itself, the dump in `pg_dump`'s own format, and the master key if that
was asked for. The archive's checksums tell a damaged file; its directory, which stands at the end, one that was cut
short. So it can also be looked at, and its dump restored by hand, without Windlass.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from windlass.embedded.places import sync_folder
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT = 1
ABOUT, DUMP, KEY = "backup.json", "database.dump", "master.key"
NO_BACKUP = "Give the file that `windlass backup` wrote, whole as it was."


class BackupError(WindlassError):
    """A backup that can't be made, or can't be used."""


@dataclass(frozen=True, slots=True)
class About:
    """`migration` is the newest that the release knew; `key_id` names the master key, and `probe` is a text that is
    sealed with it.
    """

    windlass: str
    postgres: str
    made_at: str
    migration: int
    key_id: str
    probe: str


class BackupFile:
    """One that was found whole."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, about: About) -> None:
        self.path = path
        self.about = about
        self._archive = archive

    @property
    def dump_size(self) -> int:
        return self._archive.getinfo(DUMP).file_size

    @property
    def key(self) -> str | None:
        """The text of the key file, if the backup has it."""
        return self._archive.read(KEY).decode() if KEY in self._archive.namelist() else None

    def dump(self) -> IO[bytes]:
        return self._archive.open(DUMP)


@contextmanager
def opened(path: Path) -> Iterator[BackupFile]:
    """Reads all of it first. Raises BackupError."""
    try:
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise BackupError(f"The backup {path} is damaged, in {damaged}.", NO_BACKUP)
            yield BackupFile(path, archive, _about(path, archive))
    except zipfile.BadZipFile:
        raise BackupError(f"{path} is no backup of Windlass, or it was cut short.", NO_BACKUP) from None
    except FileNotFoundError:
        raise BackupError(f"There is no file {path}.", NO_BACKUP) from None
    except OSError as error:
        raise BackupError(f"The backup {path} can't be read: {error.strerror or error}.", NO_BACKUP) from error


def _about(path: Path, archive: zipfile.ZipFile) -> About:
    try:
        told: dict[str, Any] = json.loads(archive.read(ABOUT))
        archive.getinfo(DUMP)
        if (found := told.pop("format")) == FORMAT:
            return About(**told)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BackupError(f"{path} is an archive, but no backup of Windlass.", NO_BACKUP) from None
    raise BackupError(
        f"The backup {path} has the format {found}, which this Windlass doesn't know.",
        "Restore it with the version that made it, or a newer one.",
    )


class NewBackup:
    """Under `path` stands what was there, until all of this is on the disk: then this."""

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
    """A file for its owner alone. Raises BackupError, and leaves nothing behind then."""
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
            "Nothing of it was left. Choose a folder that this user may write to, with enough free space.",
        ) from error

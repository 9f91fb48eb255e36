"""A backup becomes the database of a home: made beside the one that is there, and put in its place only when whole."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Self

from windlass.embedded import dumping
from windlass.embedded.account import make_home
from windlass.embedded.backup_file import BackupError
from windlass.embedded.folder_lock import FolderLock
from windlass.embedded.leftovers import take_database_lock
from windlass.embedded.places import Places, sync_folder
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.embedded.postgres_errors import unusable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from windlass.embedded.backup_file import BackupFile


class Restoration:
    """Holds the home while it lasts, so that no server starts on it. Whatever fails, the home is as it was."""

    def __init__(self, home: Path, report: Callable[[str], None]) -> None:
        self._places = Places(home.absolute())
        self._beside = Places(self._places.home / "restoring")
        self._lock = FolderLock(self._places.server_lock)
        self._report = report

    def __enter__(self) -> Self:
        """Raises EmbeddedPostgresError, HomeInUse while a server runs on the home."""
        try:
            make_home(self._places.home)
            self._lock.take()
            if self._places.own.exists():
                os.close(take_database_lock(self._places, self._report))
            self._clear()
        except OSError as error:
            self._lock.release()
            raise unusable(self._places.home, error) from error
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._clear()
        finally:
            self._lock.release()

    @property
    def has_data(self) -> bool:
        data = self._places.data
        return data.exists() and any(data.iterdir())

    def load(self, backup: BackupFile, read: Callable[[int], None]) -> None:
        """Raises BackupError, EmbeddedPostgresError."""
        database = EmbeddedPostgres(self._beside.home, report=self._report)
        try:
            database.start()
            with backup.dump() as source:
                dumping.restore(self._beside, source, read)
        finally:
            database.stop()

    def take_place(self) -> Path | None:
        """Where the database that was there is now; None when there was none."""
        aside = self._put_aside() if self.has_data else None
        try:
            if self._places.own.exists():
                shutil.rmtree(self._places.own)
            self._beside.own.rename(self._places.own)
        except OSError as error:
            if aside:
                aside.rename(self._places.own)
            raise BackupError(
                f"The database could not be put in its place: {error}.", "Nothing was changed."
            ) from error
        sync_folder(self._places.home)
        return aside

    def _put_aside(self) -> Path:
        aside = self._places.home / f"postgres.before-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        self._places.own.rename(aside)
        return aside

    def _clear(self) -> None:
        """Away with what a restoration that was killed left half made."""
        if self._beside.home.exists():
            if self._beside.own.exists():
                os.close(take_database_lock(self._beside, self._report))
            shutil.rmtree(self._beside.home)

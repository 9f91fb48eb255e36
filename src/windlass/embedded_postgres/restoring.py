"""Restores a backup as the database of a home.

The restored database is made beside the existing one, and replaces it only when it is complete.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Self

from windlass.embedded_postgres import dumping
from windlass.embedded_postgres.account import make_home
from windlass.embedded_postgres.backup_file import BackupError
from windlass.embedded_postgres.errors import unusable
from windlass.embedded_postgres.folder_lock import FolderLock
from windlass.embedded_postgres.paths import Paths, sync_folder
from windlass.embedded_postgres.postgres import EmbeddedPostgres
from windlass.embedded_postgres.stale_processes import take_database_lock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from windlass.embedded_postgres.backup_file import BackupFile


class Restoration:
    """Locks the home until its end, so that no server starts on it. A failure leaves the home unchanged."""

    def __init__(self, home: Path, report: Callable[[str], None]) -> None:
        self._places = Paths(home.absolute())
        self._beside = Paths(self._places.home / "restoring")
        self._lock = FolderLock(self._places.server_lock)
        self._report = report

    def __enter__(self) -> Self:
        """Raises EmbeddedPostgresError, and HomeInUse while a server runs on the home."""
        try:
            make_home(self._places.home)
            self._lock.take(self._report)
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
        """Restores the backup into a new database beside the old one. Raises BackupError, EmbeddedPostgresError."""
        database = EmbeddedPostgres(self._beside.home, report=self._report)
        try:
            database.start()
            with backup.dump() as source:
                dumping.restore(self._beside, source, read)
        finally:
            database.stop()

    def take_place(self) -> Path | None:
        """Replaces the existing database by the restored one.

        Returns the folder to which the existing database was moved; None if there was none. Raises BackupError.
        """
        aside = self._put_aside() if self.has_data else None
        try:
            if self._places.own.exists():
                shutil.rmtree(self._places.own)
            self._beside.own.rename(self._places.own)
        except OSError as error:
            if aside:
                aside.rename(self._places.own)
            raise BackupError(
                f"The restored database could not replace the existing one: {error}.", "Nothing was changed."
            ) from error
        sync_folder(self._places.home)
        return aside

    def _put_aside(self) -> Path:
        aside = self._places.home / f"postgres.before-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        self._places.own.rename(aside)
        return aside

    def _clear(self) -> None:
        """Removes the incomplete database of a restoration that was killed."""
        if self._beside.home.exists():
            if self._beside.own.exists():
                os.close(take_database_lock(self._beside, self._report))
            shutil.rmtree(self._beside.home)

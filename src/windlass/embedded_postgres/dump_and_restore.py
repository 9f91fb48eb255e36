"""Dumps and restores the database with the programs of PostgreSQL.

A dump shows one moment of the database, also while the database is in use. A restored database is made beside the
existing one, and replaces it only when it is complete.
"""

# See docs/decisions/store.md#a-restore-renames-a-complete-database

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Self

from windlass import hardening
from windlass.embedded_postgres.backup_file import BackupError
from windlass.embedded_postgres.data_folder import DATABASE, PORT, USER
from windlass.embedded_postgres.errors import unusable
from windlass.embedded_postgres.home import Paths, make_home
from windlass.embedded_postgres.keeper import ENVIRONMENT
from windlass.embedded_postgres.locks import FolderLock, take_database_lock
from windlass.embedded_postgres.postgres import EmbeddedPostgres
from windlass.embedded_postgres.programs import psql
from windlass.files import sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

    from windlass.embedded_postgres.backup_file import BackupFile


CHUNK = 1 << 20
DUMP = ("pg_dump", "--format=custom", "--compress=gzip:1", "--no-owner", "--no-privileges", "--lock-wait-timeout=60s")
RESTORE = (
    "pg_restore",
    f"--dbname={DATABASE}",
    "--single-transaction",
    "--exit-on-error",
    "--no-owner",
    "--no-privileges",
)


def dump(places: Paths, to: IO[bytes], written: Callable[[int], None]) -> int:
    """Dumps the running database and returns the number of bytes. Raises BackupError.

    Calls `written` with the number of bytes after each chunk.
    """
    total = 0
    with _program(places, DUMP, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None  # noqa: S101 - a pipe was requested
        while chunk := process.stdout.read(CHUNK):
            to.write(chunk)
            total += len(chunk)
            written(total)
    return total


def restore(places: Paths, source: IO[bytes], read: Callable[[int], None]) -> None:
    """Restores a dump into the running, empty database, in one transaction. Raises BackupError.

    Calls `read` with the number of bytes after each chunk.
    """
    total = 0
    with _program(places, RESTORE, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None  # noqa: S101 - a pipe was requested
        with suppress(BrokenPipeError), process.stdin:  # the program has ended and written the reason
            while chunk := source.read(CHUNK):
                process.stdin.write(chunk)
                total += len(chunk)
                read(total)


@contextmanager
def _program(
    places: Paths, command: tuple[str, ...], *, stdin: int | None = None, stdout: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    name, *options = command
    with (
        _password(places) as password,
        tempfile.TemporaryFile() as messages,
        subprocess.Popen(  # noqa: S603 - PostgreSQL's program, and options of our own
            [psql().with_name(name), *options],
            stdin=stdin or subprocess.DEVNULL,
            stdout=stdout or subprocess.DEVNULL,
            stderr=messages,
            cwd="/",
            env=ENVIRONMENT | _connection(places) | hardening.password_variable(password),
            pass_fds=(password,),
        ) as process,
    ):
        try:
            yield process
        except BaseException:
            process.kill()
            raise
        if process.wait():
            messages.seek(0)
            raise BackupError(
                f"{name} failed: {_last_lines(messages.read())}.", "docs/how-to/backup.md lists what a backup needs."
            )


def _connection(places: Paths) -> dict[str, str]:
    return {
        "PGHOST": places.socket_folder.read_text(),
        "PGPORT": str(PORT),
        "PGUSER": USER,
        "PGDATABASE": DATABASE,
    }


@contextmanager
def _password(places: Paths) -> Iterator[int]:
    descriptor = hardening.password_file(places.password.read_text().strip())
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _last_lines(messages: bytes) -> str:
    lines = messages.decode(errors="replace").strip().splitlines()
    return "; ".join(lines[-3:]).rstrip(".") or "it gave no reason"


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
                restore(self._beside, source, read)
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

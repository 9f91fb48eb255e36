"""Runs `pg_dump` and `pg_restore`. A dump shows one moment of the database, also while the database is in use."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from windlass import hardening
from windlass.embedded_postgres.backup_file import BackupError
from windlass.embedded_postgres.data_folder import DATABASE, USER
from windlass.embedded_postgres.programs import ENVIRONMENT, psql
from windlass.embedded_postgres.socket_folder import PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass.embedded_postgres.paths import Paths

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
                f"{name} failed: {_last_lines(messages.read())}.", "docs/backup.md lists what a backup needs."
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

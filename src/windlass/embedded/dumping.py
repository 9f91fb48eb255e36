"""PostgreSQL's own programs, which dump a database that is being used as it was at one moment, and restore that."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from windlass.embedded.backup_file import BackupError
from windlass.embedded.data_folder import DATABASE, USER
from windlass.embedded.programs import ENVIRONMENT, psql
from windlass.embedded.socket_folder import PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass.embedded.places import Places

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


def dump(places: Places, to: IO[bytes], written: Callable[[int], None]) -> int:
    """Of the database that runs there; `written` hears the bytes so far. Returns the bytes. Raises BackupError."""
    total = 0
    with _program(places, DUMP, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None  # noqa: S101 - asked for
        while chunk := process.stdout.read(CHUNK):
            to.write(chunk)
            total += len(chunk)
            written(total)
    return total


def restore(places: Places, source: IO[bytes], read: Callable[[int], None]) -> None:
    """Into the empty database that runs there, in one transaction. Raises BackupError."""
    total = 0
    with _program(places, RESTORE, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None  # noqa: S101 - asked for
        with suppress(BrokenPipeError), process.stdin:  # it has ended, and says why
            while chunk := source.read(CHUNK):
                process.stdin.write(chunk)
                total += len(chunk)
                read(total)


@contextmanager
def _program(
    places: Places, command: tuple[str, ...], *, stdin: int | None = None, stdout: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    name, *options = command
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(  # noqa: S603 - PostgreSQL's program, and options of our own
            [psql().with_name(name), *options],
            stdin=stdin or subprocess.DEVNULL,
            stdout=stdout or subprocess.DEVNULL,
            stderr=said,
            cwd="/",
            env=ENVIRONMENT | _connection(places),
        ) as process,
    ):
        try:
            yield process
        except BaseException:
            process.kill()
            raise
        if process.wait():
            said.seek(0)
            raise BackupError(f"{name} failed: {_last_words(said.read())}.", "docs/backup.md says what it needs.")


def _connection(places: Places) -> dict[str, str]:
    return {
        "PGHOST": places.socket_folder.read_text(),
        "PGPORT": str(PORT),
        "PGUSER": USER,
        "PGDATABASE": DATABASE,
        "PGPASSWORD": places.password.read_text().strip(),
    }


def _last_words(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return "; ".join(lines[-3:]).rstrip(".") or "it did not say why"

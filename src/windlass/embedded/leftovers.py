"""What servers that were killed leave behind: a PostgreSQL that still finishes, and files that name processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.embedded.folder_lock import try_lock
from windlass.embedded.keeper import SOCKET_LOCK
from windlass.embedded.postgres_errors import OUTSIDE, EmbeddedPostgresError

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.embedded.places import Places

LIMIT = 20.0  # seconds; a keeper whose server died has killed PostgreSQL before that
PATIENCE = 2.0  # seconds, after which it seems that no keeper is left to stop it
STEP = 0.02


def take_database_lock(places: Places, report: Callable[[str], None], limit: float = LIMIT) -> int:
    """A descriptor that holds the lock, once the PostgreSQL of a server before us is gone.

    Raises EmbeddedPostgresError after `limit` seconds. Only for who holds the lock of the server: who else holds
    this one can then be no part of a living server.
    """
    started = time.monotonic()
    steps = iter(((0.1, _say), (PATIENCE, _interrupt)))
    following = next(steps, None)
    while (descriptor := try_lock(places.database_lock)) is None:
        waited = time.monotonic() - started
        if following and waited > following[0]:
            following[1](places, report)
            following = next(steps, None)
        if waited > limit:
            raise _still_there(places, waited)
        time.sleep(STEP)
    return descriptor


def clear_process_files(places: Places, socket_folder: Path) -> None:
    """Takes away what names a process that isn't PostgreSQL on this data, so that PostgreSQL doesn't take it for one.

    That process is left alone. A PostgreSQL that someone started by hand on this data keeps its file: ours will refuse.
    """
    if (pid := postmaster(places.data)) is None or not is_postgres_on(pid, places.data):
        (places.data / "postmaster.pid").unlink(missing_ok=True)
        (socket_folder / SOCKET_LOCK).unlink(missing_ok=True)


def postmaster(data: Path) -> int | None:
    """The process that the data's own file names, dead or alive or another by now."""
    try:
        descriptor = os.open(data / "postmaster.pid", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor) as file:
        first = file.readline().strip()
    return int(first) if first.isdecimal() else None


def is_postgres_on(pid: int, data: Path) -> bool:
    if sys.platform != "linux":
        return _named_on_command_line(pid, data)
    try:
        program, folder = (Path(f"/proc/{pid}/{link}").readlink() for link in ("exe", "cwd"))
    except OSError:
        return False
    return program.name.startswith("postgres") and folder == data.resolve()


def _named_on_command_line(pid: int, data: Path) -> bool:
    shown = subprocess.run(  # noqa: S603 - a number
        ["/bin/ps", "-o", "command=", "-p", str(pid)], check=False, capture_output=True, text=True
    ).stdout
    return "postgres" in shown and str(data) in shown


def _say(_: Places, report: Callable[[str], None]) -> None:
    report("waiting for the PostgreSQL of the server before this one to finish")


def _interrupt(places: Places, report: Callable[[str], None]) -> None:
    pid = postmaster(places.data)
    if pid is not None and is_postgres_on(pid, places.data):
        report(f"stopping the PostgreSQL of a server that was killed (process {pid})")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)


def _still_there(places: Places, waited: float) -> EmbeddedPostgresError:
    pid = postmaster(places.data)
    known = pid is not None and is_postgres_on(pid, places.data)
    return EmbeddedPostgresError(
        f"A PostgreSQL of a server before this one still holds {places.own} after {waited:.0f} s"
        + (f" (process {pid})." if known else "."),
        (f"Stop it with: kill -INT {pid}; " if known else "Find it with: ps -ef | grep postgres; ")
        + f"then start again, {OUTSIDE}.",
    )

"""Handles what killed servers leave behind: a PostgreSQL that still shuts down, and files with process ids."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.embedded_postgres.errors import OUTSIDE, EmbeddedPostgresError
from windlass.embedded_postgres.folder_lock import try_lock
from windlass.embedded_postgres.keeper import SOCKET_LOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.embedded_postgres.paths import Paths

LIMIT = 20.0  # seconds; a keeper whose server died has killed PostgreSQL by then
PATIENCE = 2.0  # seconds, after which probably no keeper is left to stop PostgreSQL
STEP = 0.02


def take_database_lock(places: Paths, report: Callable[[str], None], limit: float = LIMIT) -> int:
    """Waits until the PostgreSQL of an earlier server has ended. Returns a descriptor that holds the lock.

    Raises EmbeddedPostgresError after `limit` seconds. The caller must hold the lock of the server. Then no other
    holder of the database lock belongs to a running server.
    """
    started = time.monotonic()
    steps = iter(((0.1, _notify), (PATIENCE, _interrupt)))
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


def clear_process_files(places: Paths, socket_folder: Path) -> None:
    """Removes the files with a process id if that process is no PostgreSQL on this data.

    PostgreSQL would otherwise take that process for a running PostgreSQL. The process itself is left alone. If somebody
    started a PostgreSQL on this data by hand, its file stays, and the embedded PostgreSQL refuses to start.
    """
    if (pid := postmaster(places.data)) is None or not is_postgres_on(pid, places.data):
        (places.data / "postmaster.pid").unlink(missing_ok=True)
        (socket_folder / SOCKET_LOCK).unlink(missing_ok=True)


def postmaster(data: Path) -> int | None:
    """Returns the process id in `postmaster.pid`. That process may have ended, and the id may be another process's."""
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
    shown = subprocess.run(  # noqa: S603 - the argument is a number
        ["/bin/ps", "-o", "command=", "-p", str(pid)], check=False, capture_output=True, text=True
    ).stdout
    return "postgres" in shown and str(data) in shown


def _notify(_: Paths, report: Callable[[str], None]) -> None:
    report("waiting for the PostgreSQL of an earlier server to end")


def _interrupt(places: Paths, report: Callable[[str], None]) -> None:
    pid = postmaster(places.data)
    if pid is not None and is_postgres_on(pid, places.data):
        report(f"stopping the PostgreSQL of a server that was killed (process {pid})")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)


def _still_there(places: Paths, waited: float) -> EmbeddedPostgresError:
    pid = postmaster(places.data)
    known = pid is not None and is_postgres_on(pid, places.data)
    return EmbeddedPostgresError(
        f"A PostgreSQL of an earlier server still holds {places.own} after {waited:.0f} s"
        + (f" (process {pid})." if known else "."),
        (f"Stop it with `kill -INT {pid}`, " if known else "Find it with `ps -ef | grep postgres`, stop it, ")
        + f"then start again, {OUTSIDE}.",
    )

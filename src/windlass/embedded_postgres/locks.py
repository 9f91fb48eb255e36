"""The locks of a home and of its database, and what killed servers leave behind: processes, files with their ids.

The process id in a lock's file is only information for people.
"""

# See docs/decisions/store.md#the-embedded-database-has-two-locks

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.embedded_postgres.errors import OUTSIDE, EmbeddedPostgresError, HomeInUse
from windlass.embedded_postgres.keeper import SOCKET_LOCK
from windlass.files import is_locked, try_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.embedded_postgres.home import Paths


LIMIT = 20.0  # seconds; a keeper whose server died has killed PostgreSQL by then
PATIENCE = 2.0  # seconds, after which probably no keeper is left to stop PostgreSQL
STEP = 0.02
LOCK_PATIENCE = 0.2  # seconds; another process that calls `is_locked` may hold the lock for an instant
COMMAND_PATIENCE = (
    60.0  # seconds; a command such as `windlass tokens show` starts the database, queries it and stops it
)
COMMAND_REPORT = 1.0  # seconds of such a wait after which it is reported
OF_COMMAND = "command"


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


def is_held_by_command(path: Path) -> bool:
    try:
        return is_locked(path) and path.read_text().startswith(OF_COMMAND)
    except FileNotFoundError:
        return False


class FolderLock:
    """The lock of one server. `release` may be called twice, or before `take`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def is_taken(self) -> bool:
        return self._descriptor is not None

    def take(self, report: Callable[[str], None], *, for_command: bool = False) -> None:
        """Takes the lock or raises HomeInUse. Waits for a holder that took it `for_command`: it ends within seconds."""
        began = time.monotonic()
        reported = False
        while (descriptor := try_lock(self._path)) is None:
            waited = time.monotonic() - began
            holder = self._path.read_text().strip()
            if waited > (COMMAND_PATIENCE if holder.startswith(OF_COMMAND) else LOCK_PATIENCE):
                raise HomeInUse(self._path.parent, holder or "process unknown")
            if waited > COMMAND_REPORT and not reported:
                report(f"waiting for another windlass command, which uses this home ({holder})")
                reported = True
            time.sleep(0.01)
        self._descriptor = descriptor
        os.ftruncate(descriptor, 0)
        kind = OF_COMMAND if for_command else "process"
        os.pwrite(descriptor, f"{kind} {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

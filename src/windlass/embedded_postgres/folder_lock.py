"""File locks. The system releases such a lock however its holder ends.

The process id in a lock's file is only information for people.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from typing import TYPE_CHECKING

from windlass.embedded_postgres.errors import HomeInUse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE = 0.2  # seconds; another process that calls `is_held` may hold the lock for an instant
COMMAND_PATIENCE = (
    60.0  # seconds; a command such as `windlass tokens show` starts the database, queries it and stops it
)
COMMAND_REPORT = 1.0  # seconds of such a wait after which it is reported
OF_COMMAND = "command"


def try_lock(path: Path) -> int | None:
    """Returns a descriptor that holds the lock, or None if another process holds it.

    The lock is held until the descriptor and each copy that a child inherited are closed.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def is_held_by_command(path: Path) -> bool:
    try:
        return is_held(path) and path.read_text().startswith(OF_COMMAND)
    except FileNotFoundError:
        return False


class FolderLock:
    """The lock by which one server at a time uses a home. `release` may be called twice, or before `take`."""

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
            if waited > (COMMAND_PATIENCE if holder.startswith(OF_COMMAND) else PATIENCE):
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

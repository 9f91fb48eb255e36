"""Locks that the system takes back when their holder dies, however it dies. A process id in a file is for people."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from typing import TYPE_CHECKING

from windlass.embedded.postgres_errors import HomeInUse

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 0.2  # seconds: `is_held` of another process may hold the lock for an instant


def try_lock(path: Path) -> int | None:
    """A descriptor that holds the lock until it and every copy that a child inherited is closed; None if it is held."""
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


class FolderLock:
    """One server a home. May be released twice, or before it was taken."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def is_taken(self) -> bool:
        return self._descriptor is not None

    def take(self) -> None:
        """Raises HomeInUse."""
        deadline = time.monotonic() + PATIENCE
        while (descriptor := try_lock(self._path)) is None:
            if time.monotonic() > deadline:
                raise HomeInUse(self._path.parent, self._path.read_text().strip() or "process unknown")
            time.sleep(0.01)
        self._descriptor = descriptor
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

"""Finds what a run has left: threads, descriptors. Closes idle HTTP connections."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import threading
from pathlib import Path

POOLS = ("httpcore", "httpcore2")
"""Modules of httpx, which the clients of models use, with a `ConnectionPool`."""


def threads() -> set[int]:
    """Returns the system's ids of the threads of this process, also of those that libraries started in C code."""
    try:
        return {int(name) for name in os.listdir("/proc/self/task")}  # noqa: PTH208 - read after each run
    except OSError:
        return {thread.native_id or 0 for thread in threading.enumerate()}


def name_of_thread(thread: int) -> str:
    """Returns the name that Python has for the thread, or the system's for one that was started in C code."""
    for one in threading.enumerate():
        if one.native_id == thread:
            return one.name
    with contextlib.suppress(OSError):
        return Path(f"/proc/self/task/{thread}/comm").read_text().strip()
    return "a thread that has ended"


def files() -> dict[int, tuple[int, int]]:
    """Returns the open descriptors, each with the device and the number of its file."""
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - as above
            with contextlib.suppress(OSError):  # the one with which this folder was read
                status = os.fstat(int(name))
                found[int(name)] = status.st_dev, status.st_ino
    return found


def path_of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - may be no path: socket:[123]
    except OSError:
        return ""


def wakes(descriptor: int) -> bool:
    """Returns whether event loops use the descriptor to wait and to wake each other: no file, and no connection to
    another process.
    """
    path = path_of(descriptor)
    if path.startswith("anon_inode:"):
        return True
    if not path.startswith("socket:"):
        return False
    with socket.socket(fileno=os.dup(descriptor)) as found, contextlib.suppress(OSError):
        return found.family == socket.AF_UNIX and not found.getsockname() and not found.getpeername()
    return False


def close_idle_connections() -> None:
    """Closes HTTP connections that clients in variables of modules keep. A client opens another one when it needs it.

    Connections of asyncio are not closed: their event loop has ended.
    """
    kinds = [(module, "ConnectionPool") for module in POOLS] + [("urllib3", "PoolManager")]
    clients = tuple(found for name, kind in kinds if (found := getattr(sys.modules.get(name), kind, None)))
    for one in gc.get_objects():
        if not issubclass(type(one), clients):
            continue
        if hasattr(one, "clear"):  # of urllib3
            one.clear()
            continue
        for connection in one.connections:
            if connection.is_idle():
                connection.close()

"""Closes what libraries leave open to be quicker the next time: idle HTTP connections, processes of multiprocessing."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

POOLS = ("httpcore", "httpcore2")
"""Modules of httpx, which the clients of models use, with a `ConnectionPool`."""
HELPERS = (
    ("multiprocessing.forkserver", "_forkserver", "_forkserver_alive_fd", "_forkserver_pid"),
    ("multiprocessing.resource_tracker", "_resource_tracker", "_fd", "_pid"),
)
"""Objects of multiprocessing that start a process, with their attributes for the descriptor whose end ends it, and for
its id. The first one uses the second one.
"""
SECONDS = 1.0
PAUSE = 0.005


def close_idle_connections() -> None:
    """Closes HTTP connections that clients in variables of modules keep. A client opens another one when it needs it.

    Connections of asyncio are not closed: their event loop has ended.
    """
    pools = tuple(found for found in (member(name, "ConnectionPool") for name in POOLS) if found)
    managers = tuple(found for found in (member("urllib3", "PoolManager"),) if found)
    for one in gc.get_objects():
        kind = type(one)
        if issubclass(kind, managers):
            one.clear()
        elif issubclass(kind, pools):
            for connection in one.connections:
                if connection.is_idle():
                    connection.close()


def end_helpers(before: Collection[int]) -> None:
    """Ends the processes that multiprocessing keeps. `before` are descriptors that were open before the run."""
    for module, name, attribute, pid_attribute in HELPERS:
        helper = member(module, name)
        descriptor, pid = getattr(helper, attribute, None), getattr(helper, pid_attribute, None)
        if descriptor is None or pid is None or descriptor in before:
            continue
        setattr(helper, attribute, None)
        setattr(helper, pid_attribute, None)
        with contextlib.suppress(OSError):
            os.close(descriptor)
            deadline = time.monotonic() + SECONDS
            while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
                time.sleep(PAUSE)


def member(module: str, name: str) -> Any:
    """Returns a member of a module that is imported, else None."""
    return getattr(sys.modules.get(module), name, None)

"""Runs a Windlass process until a signal asks it to stop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import uvloop

from windlass import log

if TYPE_CHECKING:
    from windlass.wiring.infrastructure import Notify

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

logger = log.logger(__name__)


class ShutdownSignal:
    """The stop signals that the process has received.

    Each of them asks the process to stop. Ctrl-C (SIGINT) or a second signal also sets `hurry`: the process then does
    not wait for runs in progress. Further signals change nothing, because a stop has deadlines and must clean up.
    """

    def __init__(self) -> None:
        self.started = False
        self.hurry = asyncio.Event()
        self._stop = asyncio.Event()

    async def to_stop(self) -> None:
        """Marks the process as started, and waits for a signal. A signal before this call cancels the start."""
        self.started = True
        await self._stop.wait()

    def receive(self, number: int) -> bool:
        """Records the signal. Returns whether it is the first one."""
        first = not self._stop.is_set()
        self._stop.set()
        if number == signal.SIGINT or not first:
            self.hurry.set()
        return first


Serve = Callable[[ShutdownSignal], Awaitable[None]]
"""Starts the process, serves until a stop signal, and stops."""


def run_until_shutdown(serve: Serve, notify: Notify) -> int:
    os.umask(os.umask(0o077) & 0o077)  # the umask must not keep the process from its own files
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        return loop.run(_run_until_shutdown(serve, notify))


async def _run_until_shutdown(serve: Serve, notify: Notify) -> int:
    shutdown = ShutdownSignal()
    serving = asyncio.ensure_future(serve(shutdown))

    def receive(number: int) -> None:
        if shutdown.receive(number):
            logger.event("server.stopping")
            notify("stopping")
            if not shutdown.started:
                serving.cancel()

    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, receive, number)
    with suppress(asyncio.CancelledError):
        await serving
    return 0

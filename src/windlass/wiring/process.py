"""A process of ours, from its start until it is told to stop."""

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
    from windlass.wiring.ground import Say

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

logger = log.logger(__name__)


class Told:
    """What the process was told by signals: to stop, by any; to `hurry`, by Ctrl-C (SIGINT) or by a second one: what
    still runs is not waited for then. More of them change nothing: stopping has its deadlines, and is to leave nothing
    behind.
    """

    def __init__(self) -> None:
        self.started = False
        self.hurry = asyncio.Event()
        self._stop = asyncio.Event()

    async def to_stop(self) -> None:
        """All is started by now. Before, being told to stop cancels it."""
        self.started = True
        await self._stop.wait()

    def hear(self, number: int) -> bool:
        """Whether this is the first one."""
        first = not self._stop.is_set()
        self._stop.set()
        if number == signal.SIGINT or not first:
            self.hurry.set()
        return first


Serve = Callable[[Told], Awaitable[None]]
"""Starts, serves until it is told to stop, and stops."""


def run_until_told(serve: Serve, say: Say) -> int:
    os.umask(os.umask(0o077) & 0o077)  # whatever it was, we can read what we write
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        return loop.run(_run_until_told(serve, say))


async def _run_until_told(serve: Serve, say: Say) -> int:
    told = Told()
    serving = asyncio.ensure_future(serve(told))

    def hear(number: int) -> None:
        if told.hear(number):
            logger.event("server.stopping")
            say("stopping")
            if not told.started:
                serving.cancel()

    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, hear, number)
    with suppress(asyncio.CancelledError):
        await serving
    return 0

"""A child that can take another run when it is idle."""

# See docs/decisions/runner.md#a-reused-child-confirms-its-next-run

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windlass.runner.child import Child
from windlass.runner.io import is_readable
from windlass.runner.processes import Memory, process, proportional
from windlass_child.protocol.frames import encode
from windlass_child.protocol.lease import boottime
from windlass_child.protocol.messages import Begun, Exited, Idle, Lease, NextRun, Quit, Succeeded

if TYPE_CHECKING:
    from windlass.kickoffs.outcome import Answer, Ended
    from windlass.runner.child import Supervision
    from windlass.runner.resource_monitor import WatchedRun
    from windlass.runner.run_spec import Replay, Report
    from windlass_child.protocol.messages import Message

QUIT_SECONDS = 6.0
"""The time in which an idle child may run the exit handlers of crew code (child.WIND_DOWN_SECONDS), and end."""
FOREVER = 10 * 365 * 86400.0
"""Seconds: the lease of a run that has none, in a child that had one."""


class NotBegun(Exception):  # noqa: N818 - describes the run
    """A child that had run before ended before it began this run, which can be given to another child."""


class ReusableChild(Child):
    takes_more = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.made_at = time.monotonic()
        self.runs = 0
        """The number of runs so far, with the one that is going on."""
        self._idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._begun = self._ended_well = False
        self._unsent = 0
        self._rollup: int | None = None
        self._stacks: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether its run has ended, and the child waits for another one and sends nothing. No if its run was asked to
        end: a signal may be on its way, and would reach the next run.
        """
        silent = self._messages.is_empty and not any(map(is_readable, self._pipes.values()))
        return self._ended_well and silent and not self._unsent and not self._zygote.has_ended(self._name)

    async def rest(self, seconds: float) -> None:
        """Has the idle child end after so many seconds, unless it gets another run before."""
        self._lease(boottime() + seconds)
        await self._send(encode(Lease(boottime() + seconds)))

    async def memory(self) -> Memory | None:
        """Returns the memory of the child; None if it can't be read."""
        found = process(self.process.pid)
        share = await asyncio.to_thread(proportional, self.process.pid, self._rollup)
        return None if found is None or share is None else Memory(found.rss, share)

    async def quit(self) -> None:
        """Asks the idle child to end, and waits until it has ended, for QUIT_SECONDS at most."""
        await self._send(encode(Quit()))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._zygote.exit_of(self._name)), QUIT_SECONDS)

    def close(self) -> None:
        super().close()
        for descriptor in (self._rollup, self._stacks):
            if descriptor is not None:
                os.close(descriptor)
        self._rollup = self._stacks = None

    async def follow(self, journal: Replay, message: bytes, supervision: Supervision) -> Ended:
        """Returns when the child has ended, or is idle. Raises NotBegun."""
        if self.runs:
            self._messages.resume()
            self._idle = asyncio.get_running_loop().create_future()
            if supervision.context.lease_handle.until is None:  # the zygote has that of an earlier run
                self._lease(boottime() + FOREVER)
        self._begun, self._ended_well = not self.runs, False
        self.runs += 1
        ended = await super().follow(journal, message, supervision)
        if not self._begun and ended.asked is None:
            raise NotBegun
        self._ended_well = self._idle.done() and ended.asked is None
        return ended

    async def _end_of_run(self) -> Exited | None:
        exit_of_child = self._zygote.exit_of(self._name)
        ends: list[asyncio.Future[Any]] = [exit_of_child, self._idle]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not exit_of_child.done():
            return Exited(self._name, self.process.pid, os.EX_OK)
        exited = exit_of_child.result()
        return exited if exited is None or self._begun else replace(exited, lapsed=False)

    def _first_frames(self) -> bytes:
        return encode(NextRun()) if self.runs > 1 else b""

    def _lease(self, until: float) -> None:
        self._zygote.lease(self._name, until)

    async def _send(self, frames: bytes) -> None:
        self._unsent += 1  # and stays so if it is cancelled, which may divide a message
        await super()._send(frames)
        self._unsent -= 1

    def _watched(self, supervision: Supervision) -> WatchedRun:
        watched = super()._watched(supervision)
        watched.rollup = None if self._rollup is None else os.dup(self._rollup)
        watched.stacks = None if self._stacks is None else os.dup(self._stacks)
        return watched

    async def _take(
        self, message: Message, answer: Answer | None, report: Report, watched: WatchedRun, supervision: Supervision
    ) -> Answer | None:
        if isinstance(message, Begun):
            self._begun = True
        elif isinstance(message, Idle):
            if isinstance(answer, Succeeded) and self._begun and not self._idle.done():
                self._idle.set_result(None)
        else:
            answer = await super()._take(message, answer, report, watched, supervision)
            self._keep_descriptors(watched)
        return answer

    def _keep_descriptors(self, watched: WatchedRun) -> None:
        """Keeps copies for later runs: those of the first `Born`, because code of the crew may send more of them."""
        if self._rollup is None and watched.rollup is not None:
            self._rollup = os.dup(watched.rollup)
        if self._stacks is None and watched.stacks is not None:
            self._stacks = os.dup(watched.stacks)

"""The slots of a worker: how many processes of runs it has at once."""

# See docs/decisions/queue.md#a-run-frees-its-slot-when-its-process-has-ended

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_WAIT = 1.0
"""Seconds that a run waits until the run before it has released its slot. After that, both have a process."""


class Slots:
    """Counts the slots of a worker. `on_free` is called when another kickoff may be claimed.

    A run holds a slot from its claim until its process has ended or is idle. A run that will soon have ended offers its
    slot, so that the next kickoff is claimed and prepared meanwhile. The process of the next run starts when the slot
    is released.
    """

    def __init__(self, count: int, on_free: Callable[[], None]) -> None:
        self._count = count
        self._on_free = on_free
        self.processes = asyncio.Semaphore(count)
        """Is acquired before the process of a run starts."""
        self.used = 0
        """The slots that are neither released nor offered."""

    def free(self, runs: int) -> int:
        """Returns how many runs may begin beside the present ones, whose number is `runs`. Among these are ended runs
        that are still being settled and removed, of which there may be as many as slots.
        """
        return min(self._count - self.used, 2 * self._count - runs)

    def of_run(self) -> Slot:
        """Returns the slot of a run that was claimed now."""
        self.used += 1
        return Slot(self)

    def offered(self) -> None:
        self.used -= 1
        self._on_free()


class Slot:
    """The slot of one run. `offered` is True as soon as the run does not need it any more."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.offered = self._acquired = False

    async def acquire(self) -> None:
        """Waits until the process of the run may start, for LONGEST_WAIT at most."""
        if not self._acquired:
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_WAIT):
                    await self._slots.processes.acquire()
                    self._acquired = True

    def offer(self) -> None:
        """Permits the claim of another kickoff. Its process waits until this slot is released."""
        if not self.offered:
            self.offered = True
            self._slots.offered()

    def release(self) -> None:
        """Releases the slot. Further calls have no effect."""
        if self._acquired:
            self._acquired = False
            self._slots.processes.release()
        self.offer()

"""The slots of a worker: how many processes of runs it has at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_WAIT = 1.0
"""Seconds that a run waits for a slot that was offered. After that its process starts beside the one that should have
ended.
"""


class Slots:
    """Counts the slots of a worker. `on_free` is called when one becomes free for another claim.

    A run holds a slot from its claim until its process has ended or is idle. A run that will soon have ended offers its
    slot, so that the next kickoff is claimed and prepared meanwhile. That one's process starts when the slot is given
    back.
    """

    def __init__(self, count: int, on_free: Callable[[], None] = lambda: None) -> None:
        self._count = count
        self._on_free = on_free
        self._processes = asyncio.Semaphore(count)
        self.used = 0

    def free(self, runs: int) -> int:
        """Returns how many runs may begin beside `runs`. Those include ended ones that are still being settled and
        removed, of which there may be as many as slots.
        """
        return min(self._count - self.used, 2 * self._count - runs)

    def of_run(self) -> Slot:
        """Returns the slot of a run that was claimed now."""
        self.used += 1
        return Slot(self, self._processes)

    def freed(self) -> None:
        self.used -= 1
        self._on_free()


class Slot:
    """The slot of one run."""

    def __init__(self, slots: Slots, processes: asyncio.Semaphore) -> None:
        self._slots = slots
        self._processes = processes
        self._offered = self._taken = False

    async def take(self) -> None:
        """Waits until the process of the run may start, for LONGEST_WAIT at most."""
        if not self._taken:
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_WAIT):
                    await self._processes.acquire()
                    self._taken = True

    def offer(self) -> None:
        """Permits the claim of the next run, whose process waits until this slot is given back."""
        if not self._offered:
            self._offered = True
            self._slots.freed()

    def give_back(self) -> None:
        """Gives the slot back, if the run still has it."""
        if self._taken:
            self._taken = False
            self._processes.release()
        self.offer()

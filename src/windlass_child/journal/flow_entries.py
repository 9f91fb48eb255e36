"""Decides when each finished method of earlier attempts is replayed.

An entry names the entry before it, because its changes were made after those of that entry. An entry is replayed only
after the one that it names. It is not replayed at all if that one was replaced by a new run: the outputs of later
methods depend on those of earlier ones. An entry may be marked with `again`: its method is run again, and the entries
after it wait for that run.
"""

# See docs/decisions/journal.md#entries-of-a-flow-form-a-chain

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from windlass_child.journal.journal import FinishedStep

QUIET_TURNS = 200
"""The number of event loop turns without a replay after which the engine requests no more journaled methods for now.

Between two journaled methods, the engine waits for nothing but its turn in the event loop.
"""


class FlowEntries:
    def __init__(self, entries: dict[str, FinishedStep]) -> None:
        """Takes the entries by method and round, in the order in which they were written."""
        self._left = connected(entries)
        self._passed: set[str] = set()
        self._running = 0
        self._moves = 0
        self._moved = asyncio.Event()

    def left(self) -> int:
        """Returns the number of outputs that are not replayed yet."""
        return sum(is_output(entry) for entry in self._left.values())

    def id_of(self, step: str) -> str:
        """Returns the id for the new entry of a step.

        A method that is run again keeps the id of its old entry, so that the entries after it still follow it.
        """
        return str(self._left[step].value["id"]) if step in self._left else secrets.token_hex(4)

    async def waited(self, step: str) -> FinishedStep | None:
        """Waits for the turn of a step and returns its entry, or None if it has no output."""
        while (entry := self._left.get(step)) is not None and is_output(entry):
            await self._turns(partial(self.follows, entry))
            if step not in self._left:
                break  # the entry was dropped meanwhile
            if self.follows(entry) or not self._running:
                return entry
            await self._moved.wait()  # the entry may follow a method that is running
        return None

    async def taken(self, step: str) -> FinishedStep | None:
        """Does the same as `waited`. The caller must call `ran` after the run of a step without an output."""
        if (entry := await self.waited(step)) is not None:
            return entry
        self._running += 1
        try:
            await self._turns(self._none_is_next)
        except BaseException:
            self._ended()
            raise
        return None

    def _none_is_next(self) -> bool:
        return not any(is_output(entry) and self.follows(entry) for entry in self._left.values())

    def follows(self, entry: FinishedStep) -> bool:
        """Returns whether the entry before this one was replayed or run again."""
        return entry.value["after"] is None or entry.value["after"] in self._passed

    def passed(self, step: str) -> None:
        entry = self._left.pop(step)
        self._passed.add(entry.value["id"])
        self._moves += 1
        self._wake()

    def ran_again(self, step: str) -> None:
        """Marks a step without an output as run again, if there is one."""
        if step in self._left:
            self.passed(step)

    def ran(self, step: str) -> None:
        """Marks the run of a step as ended, with success or without."""
        self.ran_again(step)
        self._ended()

    def drop(self, step: str) -> list[str]:
        """Removes an entry and all entries after it: their methods are run again.

        Returns the steps of those other entries that had outputs.
        """
        del self._left[step]
        left = connected(self._left, self._passed)
        dropped = [name for name, entry in self._left.items() if name not in left and is_output(entry)]
        self._left = left
        self._moves += 1
        self._wake()
        return dropped

    async def _turns(self, ready: Callable[[], bool]) -> None:
        """Waits until `ready()` is true, or until nothing was replayed for QUIET_TURNS turns of the event loop."""
        quiet = 0
        while not ready() and quiet < QUIET_TURNS:
            moves = self._moves
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._moves == moves else 0

    def _ended(self) -> None:
        self._running -= 1
        self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()


def is_output(entry: FinishedStep) -> bool:
    return "again" not in entry.value


def connected(entries: dict[str, FinishedStep], passed: Iterable[str] = ()) -> dict[str, FinishedStep]:
    """Returns the entries without those whose preceding entry is missing or was written again since."""
    ids = {None, *passed, *(entry.value["id"] for entry in entries.values())}
    found = {step: entry for step, entry in entries.items() if entry.value["after"] in ids}
    return found if len(found) == len(entries) else connected(found, passed)

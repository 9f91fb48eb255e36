"""What earlier attempts of a flow have finished, and when its turn is.

An entry names the one before it, whose changes it was made after. So it is taken after that, and not at all when that
is another one by now: what the later methods gave was made of what the earlier ones gave. An entry may say that its
method is to be run again; what came after it then waits for that.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from windlass_crewside.journal import Entry

QUIET_TURNS = 200
"""Of the event loop, in which nothing was taken: then the engine asks for no more of it for now.

Between two methods that are in the journal the engine waits for nothing but its turn.
"""


class FlowEntries:
    def __init__(self, entries: dict[str, Entry]) -> None:
        """`entries` by method and round, in the order in which they were written."""
        self._left = connected(entries)
        self._passed: set[str] = set()
        self._running = 0
        self._moves = 0
        self._moved = asyncio.Event()

    def left(self) -> int:
        """How many outputs were not asked for."""
        return sum(is_output(entry) for entry in self._left.values())

    def id_of(self, step: str) -> str:
        """Of its new entry: what came after a method that is to be run again comes after that."""
        return str(self._left[step].value["id"]) if step in self._left else secrets.token_hex(4)

    async def taken(self, step: str) -> Entry | None:
        """Comes back when its turn is. None is for a method that is to be run; then `ran` is to be called after it."""
        while (entry := self._left.get(step)) is not None and is_output(entry):
            await self._turns(partial(self.follows, entry))
            if step not in self._left:
                break  # it was dropped meanwhile
            if self.follows(entry) or not self._running:
                return entry
            await self._moved.wait()  # it may come after one that is run
        self._running += 1
        try:
            await self._turns(self._none_is_next)
        except BaseException:
            self._ended()
            raise
        return None

    def _none_is_next(self) -> bool:
        return not any(is_output(entry) and self.follows(entry) for entry in self._left.values())

    def follows(self, entry: Entry) -> bool:
        """Whether what was before it is there."""
        return entry.value["after"] is None or entry.value["after"] in self._passed

    def passed(self, step: str) -> None:
        entry = self._left.pop(step)
        self._passed.add(entry.value["id"])
        self._moves += 1

    def ran(self, step: str) -> None:
        """It has come to its end, well or not."""
        if step in self._left:
            self.passed(step)
        self._ended()

    def drop(self, step: str) -> list[str]:
        """It is run again, as is all that came after it. The others of which there were outputs."""
        del self._left[step]
        left = connected(self._left, self._passed)
        dropped = [name for name, entry in self._left.items() if name not in left and is_output(entry)]
        self._left = left
        self._moves += 1
        self._wake()
        return dropped

    async def _turns(self, ready: Callable[[], bool]) -> None:
        """Until it is so, or nothing was taken for so long that it must wait for something else."""
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


def is_output(entry: Entry) -> bool:
    return "again" not in entry.value


def connected(entries: dict[str, Entry], passed: Iterable[str] = ()) -> dict[str, Entry]:
    """Without those that came after one that is not there, or was written anew since."""
    ids = {None, *passed, *(entry.value["id"] for entry in entries.values())}
    found = {step: entry for step, entry in entries.items() if entry.value["after"] in ids}
    return found if len(found) == len(entries) else connected(found, passed)

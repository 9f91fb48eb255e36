from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.kickoffs.outcome import Ending
from windlass.kickoffs.states import Reason, State
from windlass_crewside.lease import LOOK_AGAIN_SECONDS, has_lapsed, wait_for
from windlass_crewside.messages import Lease, Written

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from windlass.runner.ender import Ender
    from windlass.runner.orders import Report

MOST_UNREAD = 10_000
"""Each thread of a child waits for the answer to its last entry: only a child that means harm has more."""

LAPSED = Ending(State.FAILED, Reason.LOST, "the lease ended before it was renewed.", at_once=True)


@dataclass(frozen=True, slots=True)
class Ties:
    """What ties a run to its worker: who hears of it, who may end it, and what it is told."""

    report: Report
    ender: Ender
    tether: Tether


class Tether:
    """What a worker tells a run while it runs. It may be used before the run begins, and after it has ended.

    Neither call waits for the run, or for anything else.
    """

    def __init__(self, until: float | None = None) -> None:
        self.until = until
        """The second of CLOCK_BOOTTIME (`boottime`) when the run's lease ends; None for no lease."""
        self._renewed: Callable[[float], None] | None = None
        self._untold_lease = False
        self._untold_numbers: deque[int] = deque(maxlen=MOST_UNREAD)
        self._news = asyncio.Event()

    def begin(self, until: float | None) -> None:
        """The lease as it was when the run was ordered, unless it was told of a later one by now."""
        if self.until is None:
            self.until = until

    @property
    def lapsed(self) -> bool:
        return has_lapsed(self.until)

    def extend(self, until: float) -> None:
        """The lease was renewed. One that has ended stays so: its processes have ended themselves."""
        if self.lapsed or (self.until is not None and until <= self.until):
            return
        self.until = until
        self._untold_lease = True
        self._news.set()
        if self._renewed:
            self._renewed(until)

    def written(self, number: int) -> None:
        """The entry of the journal with this number is committed, and all that was reported before it."""
        self._untold_numbers.append(number)
        self._news.set()

    @contextlib.contextmanager
    def held(self, renewed: Callable[[float], None]) -> Iterator[None]:
        """Has the end of the lease told at once, and each later one, beside `news`."""
        self._renewed = renewed
        if self.until is not None:
            renewed(self.until)
        try:
            yield
        finally:
            self._renewed = None

    async def news(self) -> list[Lease | Written]:
        """Waits for what the child is to be told next. Of several renewals it is the last."""
        await self._news.wait()
        self._news.clear()
        news: list[Lease | Written] = [Written(number) for number in self._untold_numbers]
        self._untold_numbers.clear()
        if self._untold_lease and self.until is not None:
            news.append(Lease(self.until))
            self._untold_lease = False
        return news


@contextlib.asynccontextmanager
async def ended_with_its_lease(tether: Tether, ender: Ender) -> AsyncIterator[None]:
    """A run in this block is made to end when its lease does, also where its processes can't tell any more."""
    minding = asyncio.create_task(_mind(tether, ender))
    try:
        yield
    finally:
        minding.cancel()
        await asyncio.wait([minding])


async def _mind(tether: Tether, ender: Ender) -> None:
    while not tether.lapsed:
        wait = wait_for(tether.until)
        await asyncio.sleep(LOOK_AGAIN_SECONDS if wait is None else wait)
    ender.end(LAPSED)


def while_leased(tether: Tether, report: Report) -> Report:
    """What comes to light after the end of the lease is not reported: the kickoff may run elsewhere by then."""

    async def heard(what: object) -> None:
        if not tether.lapsed:
            await report(what)  # type: ignore[arg-type]  # passed on as it came

    return heard

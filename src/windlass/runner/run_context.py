"""What ties a run to its worker: its reports, its termination from outside, and its lease."""

# See docs/decisions/runner.md#the-monitor-and-the-run-decide-under-a-lock

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from windlass.aio import cancelled
from windlass.kickoffs.limits import WHERE
from windlass.kickoffs.outcome import Termination
from windlass.kickoffs.states import Reason, State
from windlass_child.protocol.lease import LOOK_AGAIN_SECONDS, has_lapsed, wait_for
from windlass_child.protocol.messages import Answered, JournalCommitted, Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from windlass.runner.run_spec import Report


WAITING_LOOK = 1.0
"""Seconds between two looks at the timeout of a run that waits for a person."""
MOST_UNREAD = 10_000
"""Confirmed entries that are kept for a child that does not read. Each thread of a child waits for the answer to its
last entry, so only a malicious child has more.
"""

LAPSED = Termination(State.FAILED, Reason.LOST, "the lease ended before it was renewed.", at_once=True)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunContext:
    """Connects a run to its worker.

    `report` gets the messages of the run, `terminator` ends it, `lease_handle` renews its lease.
    """

    report: Report
    terminator: Terminator
    lease_handle: LeaseHandle


class LeaseHandle:
    """Passes lease renewals, journal commits and the answers of people from a worker to a run.

    It may be used before the run begins and after it has ended. `extend`, `written` and `answer` wait for nothing.
    """

    def __init__(self, until: float | None = None) -> None:
        self.until = until
        """The second of CLOCK_BOOTTIME (`boottime`) at which the run's lease ends; None for no lease."""
        self._renewed: Callable[[float], None] | None = None
        self._unsent_lease = False
        self._unsent_numbers: deque[int] = deque(maxlen=MOST_UNREAD)
        self._unsent_answers: list[Answered] = []
        self._waits_since: float | None = None
        self._waited = 0.0
        self._news = asyncio.Event()

    def begin(self, until: float | None) -> None:
        """Sets the lease that the run was ordered with, unless the handle has one already, which is a later one."""
        if self.until is None:
            self.until = until

    @property
    def lapsed(self) -> bool:
        return has_lapsed(self.until)

    def extend(self, until: float) -> None:
        """Renews the lease. A lease that has ended can't be renewed: the processes of its run have ended themselves."""
        if self.lapsed or (self.until is not None and until <= self.until):
            return
        self.until = until
        self._unsent_lease = True
        self._news.set()
        if self._renewed:
            self._renewed(until)

    def written(self, number: int) -> None:
        """Confirms that the journal entry with this number, and all reports before it, are committed."""
        self._unsent_numbers.append(number)
        self._news.set()

    def wait_for_person(self, *, waits: bool) -> None:
        """Notes whether the process waits alive for a person. It gives no sign of life then, and its time stands."""
        if waits and self._waits_since is None:
            self._waits_since = time.monotonic()
        elif not waits:
            self._waited, self._waits_since = self.waited_for_person, None

    @property
    def waits_for_person(self) -> bool:
        return self._waits_since is not None

    @property
    def waited_for_person(self) -> float:
        """The seconds in which the process has waited for a person."""
        return self._waited + (0.0 if self._waits_since is None else time.monotonic() - self._waits_since)

    def answer(self, answer: Answered) -> None:
        """Passes on the answer to a question for which the process waits."""
        self._unsent_answers.append(answer)
        self._news.set()

    @contextlib.contextmanager
    def held(self, renewed: Callable[[float], None]) -> Iterator[None]:
        """Calls `renewed` with the end of the lease at once, and with each later end during the block. `news` has the
        later ends too.
        """
        self._renewed = renewed
        if self.until is not None:
            renewed(self.until)
        try:
            yield
        finally:
            self._renewed = None

    async def news(self) -> list[Lease | JournalCommitted | Answered]:
        """Waits for the next messages to the child, and returns them. Of several renewals it returns the last one."""
        await self._news.wait()
        self._news.clear()
        news: list[Lease | JournalCommitted | Answered] = [JournalCommitted(number) for number in self._unsent_numbers]
        self._unsent_numbers.clear()
        news += self._unsent_answers
        self._unsent_answers = []
        if self._unsent_lease and self.until is not None:
            news.append(Lease(self.until))
            self._unsent_lease = False
        return news


@contextlib.contextmanager
def ended_with_its_lease(lease_handle: LeaseHandle, terminator: Terminator) -> Iterator[None]:
    """Ends the run in this block when its lease ends, even if its processes can't notice that any more."""
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal timer
        if lease_handle.lapsed:
            terminator.end(LAPSED)
            return
        wait = wait_for(lease_handle.until)
        timer = asyncio.get_running_loop().call_later(LOOK_AGAIN_SECONDS if wait is None else wait, look)

    look()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


def while_leased(lease_handle: LeaseHandle, report: Report) -> Report:
    """Returns `report`, but drops all messages after the end of the lease: the kickoff may run elsewhere by then."""

    async def report_while_leased(message: object) -> None:
        if not lease_handle.lapsed:
            await report(message)  # type: ignore[arg-type]  # passed on unchanged

    return report_while_leased


class Terminator:
    """Requests the end of a run from outside. It may be used before the run begins. The first request counts."""

    def __init__(self) -> None:
        self._requested: asyncio.Future[Termination] | None = None
        self.asked: Termination | None = None

    def end(self, termination: Termination) -> None:
        if self.asked is None:
            self.asked = termination
            if self._requested is not None:
                self._requested.set_result(termination)

    @property
    def requested(self) -> asyncio.Future[Termination]:
        """The first request. All waiters share this future: wait with `asyncio.wait` or `asyncio.shield`."""
        if self._requested is None:
            self._requested = asyncio.get_running_loop().create_future()
            if self.asked is not None:
                self._requested.set_result(self.asked)
        return self._requested


@contextlib.contextmanager
def at_the_latest(
    terminator: Terminator, seconds: float | None, termination: Termination, lease_handle: LeaseHandle
) -> Iterator[None]:
    """Requests `termination` when the block takes longer than `seconds`, without the time in which the run waits for a
    person; None for no bound.
    """
    if seconds is None:
        yield
        return
    loop, began = asyncio.get_running_loop(), time.monotonic() - lease_handle.waited_for_person
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        left = seconds - (time.monotonic() - began - lease_handle.waited_for_person)
        if left <= 0:
            terminator.end(termination)
        else:
            timer = loop.call_later(max(left, WAITING_LOOK) if lease_handle.waits_for_person else left, look)

    timer = loop.call_later(max(seconds, 0), look)
    try:
        yield
    finally:
        timer.cancel()


async def unless_ended(terminator: Terminator, work: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
    """Returns the result of `work`, or None when the end of the run is requested before: then `work` is cancelled."""
    if terminator.asked:
        return None
    working = asyncio.create_task(work())
    try:
        ends: list[asyncio.Future[Any]] = [working, terminator.requested]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        if not working.done():
            await cancelled(working)
        elif not working.cancelled():
            working.exception()  # it is reported above, unless the caller was cancelled


def timed_out(timeout: float | None) -> Termination:
    return Termination(
        State.TIMED_OUT,
        Reason.TIMED_OUT,
        f"the run took longer than its timeout of {timeout or 0:g} s, which counts from its first start. "
        f"Raise timeout {WHERE}.",
    )

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from windlass.kickoffs.outcome import Termination

T = TypeVar("T")


class Terminator:
    """Requests the end of a run from outside. It may be used before the run begins. The first request counts."""

    def __init__(self) -> None:
        self._requested = asyncio.Event()
        self.asked: Termination | None = None

    def end(self, ending: Termination) -> None:
        if self.asked is None:
            self.asked = ending
            self._requested.set()

    async def wait(self) -> Termination:
        await self._requested.wait()
        assert self.asked is not None  # noqa: S101 - set before the event
        return self.asked


@contextlib.contextmanager
def at_the_latest(ender: Terminator, seconds: float | None, ending: Termination) -> Iterator[None]:
    """Requests `ending` when the block takes longer than `seconds`; None for no bound."""
    if seconds is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(max(seconds, 0), ender.end, ending)
    try:
        yield
    finally:
        timer.cancel()


async def unless_ended(ender: Terminator, work: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
    """Returns the result of `work`, or None when the end of the run is requested before: then `work` is cancelled."""
    if ender.asked:
        return None
    working, requested = asyncio.create_task(work()), asyncio.create_task(ender.wait())
    try:
        await asyncio.wait({working, requested}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, requested):
            task.cancel()
        await asyncio.gather(working, requested, return_exceptions=True)

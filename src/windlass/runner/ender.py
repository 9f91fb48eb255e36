from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from windlass.kickoffs.outcome import Ending

T = TypeVar("T")


class Ender:
    """How a run is made to end from outside. It may be used before the run begins; the first reason is the one."""

    def __init__(self) -> None:
        self._told = asyncio.Event()
        self.asked: Ending | None = None

    def end(self, ending: Ending) -> None:
        if self.asked is None:
            self.asked = ending
            self._told.set()

    async def wait(self) -> Ending:
        await self._told.wait()
        assert self.asked is not None  # noqa: S101 - set before it is told
        return self.asked


@contextlib.contextmanager
def at_the_latest(ender: Ender, seconds: float | None, ending: Ending) -> Iterator[None]:
    if seconds is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(max(seconds, 0), ender.end, ending)
    try:
        yield
    finally:
        timer.cancel()


async def unless_ended(ender: Ender, work: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
    """None when the run is made to end before the work is done: then it is cancelled."""
    if ender.asked:
        return None
    working, told = asyncio.create_task(work()), asyncio.create_task(ender.wait())
    try:
        await asyncio.wait({working, told}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, told):
            task.cancel()
        await asyncio.gather(working, told, return_exceptions=True)

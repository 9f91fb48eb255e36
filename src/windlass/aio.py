"""Starts and stops long-running services in order, and waits for their tasks."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Coroutine


class Service(Protocol):
    """A part with a start and a stop.

    `stop` returns when the service has stopped. It may be called twice, and before `start`.
    """

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


P = TypeVar("P", bound=Service)
Answer = TypeVar("Answer")


@asynccontextmanager
async def serving(part: P) -> AsyncIterator[P]:
    """Runs the service during the block. Stops it at the end of the block, and also when `start` fails."""
    try:
        await part.start()
        yield part
    finally:
        await part.stop()


async def completed(work: Awaitable[Answer]) -> Answer:
    """Waits for the end of `work`, even when the caller is cancelled: a thread can't be stopped half-way."""
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    finally:
        await asyncio.gather(working, return_exceptions=True)


async def shielded(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Completes the work even when its caller is cancelled, and raises the cancellation afterwards."""
    task, cancelled = asyncio.create_task(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    answer = task.result()
    if cancelled:
        raise asyncio.CancelledError
    return answer


AGAIN = 1.0
"""Seconds after which a task that has not ended is cancelled again."""


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancels the tasks repeatedly until all have ended."""
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=AGAIN)
    await asyncio.gather(*tasks, return_exceptions=True)  # drops their errors: no caller waits for them


class obeying_cancellation:  # noqa: N801 - reads as the statement it is
    """Raises, at the end of the block, a cancellation that arrived inside it and was swallowed."""

    def __enter__(self) -> None:
        self._before = _cancellations()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if _cancellations() > self._before and not isinstance(error, asyncio.CancelledError):
            raise asyncio.CancelledError from error


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0

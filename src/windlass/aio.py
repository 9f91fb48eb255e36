"""Starts and stops long-running services in order, waits for their tasks, and moves large work to a thread."""

# See docs/decisions/api.md#large-values-are-handled-one-after-the-other

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
Answer = TypeVar("Answer")
AGAIN = 1.0
"""Seconds after which a task that has not ended is cancelled again."""
LARGE = 256 * 1024
"""Bytes or characters. Work on larger values takes milliseconds."""
_thread = ThreadPoolExecutor(1, "windlass-large")
"""A single thread. Such work holds the GIL in C code, so the event loop would wait for each of several threads."""


class Service(Protocol):
    """A part with a start and a stop.

    `stop` returns when the service has stopped. It may be called twice, and before `start`.
    """

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


P = TypeVar("P", bound=Service)


@asynccontextmanager
async def serving(part: P) -> AsyncIterator[P]:
    """Runs the service during the block. Stops it at the end of the block, and also when `start` fails."""
    try:
        await part.start()
        yield part
    finally:
        await part.stop()


async def shielded(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Completes the work even when its caller is cancelled, for example because a thread can't be stopped half-way.

    Raises the cancellation afterwards, even when the work has failed.
    """
    task, cancelled = asyncio.create_task(work), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError from task.exception()
    return task.result()


async def abortable(work: Callable[[], Answer], abort: Callable[[], None]) -> Answer:
    """Does the work in a thread. A cancellation calls `abort`, which must make the work end soon, and waits for it."""
    doing = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        abort()
        while not doing.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({doing})
        if not doing.cancelled():
            doing.exception()  # the cancellation is what counts
        raise


def in_thread(work: Callable[[], Answer], name: str) -> asyncio.Future[Answer]:
    """Does the work in a new thread. The thread is a daemon, so that it does not delay the exit of the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Answer] = loop.create_future()

    def run() -> None:
        try:
            end = partial(future.set_result, work())
        except BaseException as error:  # noqa: BLE001 - raised where the result is read
            end = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(end)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


async def set_within(event: asyncio.Event, seconds: float) -> None:
    """Returns when the event is set, and after `seconds` in any case."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


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


async def offload(size: int, work: Callable[[], Answer]) -> Answer:
    """Runs `work` in a thread when `size` is above LARGE, so that it does not block the event loop."""
    if size <= LARGE:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)

"""Cancellation that is not lost: the pool waits for a free connection with asyncio.wait_for, which before Python 3.12
forgets a cancellation that comes together with what is waited for.
"""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN = 1.0
"""Seconds."""


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancels them until they have ended."""
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=AGAIN)
    await asyncio.gather(*tasks, return_exceptions=True)  # what they raise, nobody is there to hear


class obeying_cancellation:  # noqa: N801 - reads as the statement it is
    """At the end of the block, raises the cancellation that came within it and was forgotten."""

    def __enter__(self) -> None:
        self._before = _cancellations()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if _cancellations() > self._before and not isinstance(error, asyncio.CancelledError):
            raise asyncio.CancelledError from error


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LARGE = 256 * 1024
"""Bytes or characters. Work on larger values takes milliseconds."""

_thread = ThreadPoolExecutor(1, "windlass-large")
"""A single thread. Such work holds the GIL in C code, so the event loop would wait for each of several threads."""


async def offload(size: int, work: Callable[[], T]) -> T:
    """Runs `work` in a thread when `size` is above LARGE, so that it does not block the event loop."""
    if size <= LARGE:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LARGE = 256 * 1024
"""Bytes, or characters, from which on what is done with them takes milliseconds."""

_thread = ThreadPoolExecutor(1, "windlass-large")
"""One: while such work is in C code no other thread runs, and of several the event loop would wait for each."""


async def away(size: int, work: Callable[[], T]) -> T:
    """Done in a thread when what it is done with is large: others are waiting."""
    if size <= LARGE:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)

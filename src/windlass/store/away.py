from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LARGE = 256 * 1024
"""Bytes, or characters, from which on what is done with them takes milliseconds."""


async def away(size: int, work: Callable[[], T]) -> T:
    """Done in a thread when what it is done with is large: others are waiting."""
    return await asyncio.to_thread(work) if size > LARGE else work()

"""What runs for long, and how it is started and stopped in order."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable


class Part(Protocol):
    """`stop` is complete when it returns, and may be called twice or before `start`."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


P = TypeVar("P", bound=Part)
Answer = TypeVar("Answer")


@asynccontextmanager
async def running(part: P) -> AsyncIterator[P]:
    """Stopped at the end of the block, and when it can't be started as a whole."""
    try:
        await part.start()
        yield part
    finally:
        await part.stop()


async def seen_through(work: Awaitable[Answer]) -> Answer:
    """To its end even when cancelled meanwhile: a thread can't be stopped half-way."""
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    finally:
        await asyncio.gather(working, return_exceptions=True)

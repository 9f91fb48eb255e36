from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], Awaitable[object]], *, within: float = 60.0) -> None:
    """For what nothing tells of: asks again and again until it is so. Fails after so many seconds."""
    async with asyncio.timeout(within):
        while not await condition():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.002)

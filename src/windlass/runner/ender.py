from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass.kickoffs.outcome import Ending


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

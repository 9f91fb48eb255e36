from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from windlass.errors import DatabaseUnavailable
from windlass.store.cancelling import cancelled

if TYPE_CHECKING:
    from windlass.store.database import Database


class Healing:
    """Replaces the pool's dead connections when the database is back, so that no request meets one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._heal())

    async def stop(self) -> None:
        if self._task:
            await cancelled(self._task)

    async def _heal(self) -> None:
        with suppress(DatabaseUnavailable):  # it is begun again when the database is back
            await self._database.replace_dead_connections()

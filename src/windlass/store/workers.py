from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.store.machine import host
from windlass.store.named_queries import queries

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.store.database import Database

SQL = queries("workers")
REMEMBERED = timedelta(hours=1)


class WorkerStore:
    """Which workers there are, for people and for `waiting_for`; nothing that must be right depends on it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def seen(self, worker: UUID, *, slots: int, lease: float) -> None:
        """It lives, on this machine and in this process, and is seen again before its lease ends."""
        values = {"host": host(), "pid": os.getpid(), "lease": timedelta(seconds=lease)}
        await self._database.execute(SQL["seen"], {"id": worker, "slots": slots, **values})

    async def leave(self, worker: UUID) -> None:
        await self._database.execute(SQL["leave"], {"id": worker})

    async def forget_silent(self) -> int:
        return await self._database.execute(SQL["forget_silent"], {"silent_for": REMEMBERED})

from __future__ import annotations

import functools
import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.store.named_queries import queries

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.store.database import Database


@functools.cache
def host() -> str:
    """Returns the name of this machine, as rows show it."""
    return socket.gethostname()


SQL = queries("workers")
REMEMBERED = timedelta(hours=1)


class WorkerStore:
    """Records which workers are running, for display and for `waiting_for`.

    No decision that must be correct depends on these rows.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def seen(self, worker: UUID, *, slots: int, lease: float) -> None:
        """Records that the worker is alive, on this machine and in this process, until its lease ends."""
        values = {"host": host(), "pid": os.getpid(), "lease": timedelta(seconds=lease)}
        await self._database.execute(SQL["seen"], {"id": worker, "slots": slots, **values})

    async def leave(self, worker: UUID) -> None:
        await self._database.execute(SQL["leave"], {"id": worker})

    async def forget_silent(self) -> int:
        return await self._database.execute(SQL["forget_silent"], {"silent_for": REMEMBERED})

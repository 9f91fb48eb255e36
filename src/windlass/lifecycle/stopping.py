from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from windlass import log
from windlass.kickoffs.states import State

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.store.kickoffs import KickoffStore, StopFilter

AT_ONCE = 200
"""Waiting kickoffs that one transaction ends. The transaction takes about 50 ms, and nobody else waits for it."""
PAUSE = 0.01
"""Seconds between two such transactions, in which other statements can run."""

logger = log.logger(__name__)


class Stops:
    """Stops kickoffs, in the queue or on any worker. A stop is on disk when `stop` returns, and is not undone."""

    def __init__(self, store: KickoffStore) -> None:
        self._store = store

    async def stop(self, kickoff: UUID) -> State | None:
        """Returns the state of the kickoff after the request.

        CANCELLED means that the kickoff was waiting. STARTED means that its worker is going to end it. Any other state
        means that the kickoff had ended before. Returns None for an unknown kickoff.
        """
        state = await self._store.stop(kickoff)
        if state is not None:
            logger.event("kickoff.stop_requested", kickoff_id=kickoff, state=state)
        return state

    async def stop_all(self, wanted: StopFilter) -> int:
        """Stops the kickoffs that match now, in bounded transactions. Returns their number.

        Each transaction is durable. After an interruption the same call stops the rest.
        """
        stopped = 0
        while found := await self._store.matching(wanted):
            wanted = replace(wanted, before=wanted.before or found.read_at)
            for start in range(0, len(found.waiting), AT_ONCE):
                stopped += await self._store.stop_waiting(found.waiting[start : start + AT_ONCE])
                await asyncio.sleep(PAUSE)
            for kickoff in found.running:
                stopped += await self._store.stop(kickoff) in {State.STARTED, State.CANCELLED}
        if stopped:
            logger.event("kickoffs.stop_requested", deployment_id=wanted.deployment, count=stopped)
        return stopped

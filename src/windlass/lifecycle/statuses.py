from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING
from uuid import UUID

from windlass.errors import DatabaseUnavailable
from windlass.kickoffs.waiting import waiting
from windlass.lifecycle.batching import Batcher
from windlass.store.listener import ENDED, Listener

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.kickoffs.attempts import Attempt
    from windlass.kickoffs.waiting import Facts, Waiting
    from windlass.store.kickoffs import KickoffStatus, KickoffStore

LANES = 2


class Statuses:
    """Looks kickoffs up, those that are asked for at the same time together; and waits for their end."""

    def __init__(self, store: KickoffStore, listener: Listener) -> None:
        self._store = store
        self._batches: Batcher[UUID, KickoffStatus | None] = Batcher(
            self._look_up, hopeless=DatabaseUnavailable, lanes=LANES
        )
        self._facts: Batcher[UUID, Facts | None] = Batcher(
            self._look_up_facts, hopeless=DatabaseUnavailable, lanes=LANES
        )
        self._waiting: defaultdict[UUID, set[asyncio.Future[None]]] = defaultdict(set)
        listener.on(ENDED, lambda kickoff: self._wake(UUID(kickoff)))
        listener.on_gap(self._wake_all)

    async def get(self, kickoff: UUID) -> KickoffStatus | None:
        return await self._batches.ask(kickoff)

    async def waiting(self, kickoff: UUID, asker: UUID | None) -> Waiting | None:
        """What it waits for, as the user `asker` may know it, None for the organization; None for one that runs or has
        ended, or is none.
        """
        facts = await self._facts.ask(kickoff)
        return waiting(facts.told_to(asker)) if facts else None

    async def attempts(self, kickoff: UUID) -> list[Attempt]:
        """The newest hundred, the oldest of them first."""
        return await self._store.attempts(kickoff)

    async def get_ended(self, kickoff: UUID, seconds: float) -> KickoffStatus | None:
        """As `get`, but held back until the kickoff has ended, `seconds` at most."""
        clock = asyncio.get_running_loop()
        deadline = clock.time() + seconds
        while True:
            notice = self._notice(kickoff)
            try:
                found = await self.get(kickoff)
                if found is None or found.state.ended or not await _heard(notice, deadline - clock.time()):
                    return found
            finally:
                self._forget(kickoff, notice)

    async def _look_up_facts(self, kickoffs: list[UUID]) -> Sequence[Facts | None]:
        found = await self._store.facts_of_waiting(kickoffs)
        return [found.get(kickoff) for kickoff in kickoffs]

    async def _look_up(self, kickoffs: list[UUID]) -> Sequence[KickoffStatus | None]:
        found = await self._store.statuses(kickoffs)
        return [found.get(kickoff) for kickoff in kickoffs]

    def _notice(self, kickoff: UUID) -> asyncio.Future[None]:
        """Made before the row is read: an end between the two is heard."""
        notice: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[kickoff].add(notice)
        return notice

    def _forget(self, kickoff: UUID, notice: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(kickoff, set())
        waiting.discard(notice)
        if not waiting:
            self._waiting.pop(kickoff, None)

    def _wake(self, kickoff: UUID) -> None:
        for notice in self._waiting.pop(kickoff, ()):
            if not notice.done():
                notice.set_result(None)

    def _wake_all(self) -> None:
        for kickoff in list(self._waiting):
            self._wake(kickoff)


async def _heard(notice: asyncio.Future[None], seconds: float) -> bool:
    done, _ = await asyncio.wait({notice}, timeout=max(seconds, 0))
    return bool(done)

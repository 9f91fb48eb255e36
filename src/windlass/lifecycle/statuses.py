"""Reads statuses in batches, and waits for the end of a kickoff."""

# See docs/decisions/api.md#statuses-are-looked-up-in-batches

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from windlass.batching import Batcher
from windlass.errors import DatabaseUnavailable
from windlass.kickoffs.events import HIDDEN_FROM_USERS
from windlass.kickoffs.states import State
from windlass.kickoffs.waiting import waiting
from windlass.lifecycle.notices import Notices, notified
from windlass.store.listener import ENDED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from uuid import UUID

    from windlass.kickoffs.waiting import Facts, Waiting
    from windlass.store.listener import Listener
    from windlass.store.reading import EventRow, KickoffReads, KickoffStatus, Pieces

LANES = 2
MOST_TOGETHER = 64
"""Statuses that one statement reads. Each has at most 256 KB (store/reading.py), so this number bounds the answer."""
LARGE_READS = 2
"""Large statuses that are read at once. Each holds a connection of the pool, and takes three times the size of the
status in PostgreSQL.
"""


class Statuses:
    """Reads the statuses of kickoffs, and waits for the end of kickoffs. Simultaneous requests share one statement."""

    def __init__(self, store: KickoffReads, listener: Listener) -> None:
        self.reads = store
        self._batches: Batcher[UUID, KickoffStatus | None] = Batcher(
            self._look_up, fatal=DatabaseUnavailable, largest=MOST_TOGETHER, lanes=LANES
        )
        self._large_reads = asyncio.Semaphore(LARGE_READS)
        self._facts: Batcher[UUID, Facts | None] = Batcher(self._look_up_facts, fatal=DatabaseUnavailable, lanes=LANES)
        self._ends = Notices(listener, ENDED)
        self._stopping = False

    def stop(self) -> None:
        """Ends the waits of `get_ended`, which return the status as it is. Later calls do not wait."""
        self._stopping = True
        self._ends.resolve_all()

    async def get(self, kickoff: UUID) -> KickoffStatus | None:
        return await self._batches.ask(kickoff)

    @asynccontextmanager
    async def large_members(self, kickoff: UUID) -> AsyncIterator[Pieces]:
        """Reads the members of a large status. Waits while LARGE_READS other large statuses are being read."""
        async with self._large_reads, self.reads.large_members(kickoff) as pieces:
            yield pieces

    async def waiting(self, kickoff: UUID, asker: UUID | None) -> Waiting | None:
        """Returns what the kickoff waits for, as far as the user `asker` may see it; None stands for the organization.

        Returns None for a kickoff that runs, has ended or does not exist.
        """
        facts = await self._facts.ask(kickoff)
        return waiting(facts.visible_to(asker)) if facts else None

    async def events(self, kickoff: UUID, after: int, limit: int, *, asker: UUID | None) -> list[EventRow]:
        """Returns the next events as the user `asker` may see them; None is the organization. Only the organization
        sees tracebacks and the names of secrets.
        """
        hidden = () if asker is None else HIDDEN_FROM_USERS
        return await self.reads.events(kickoff, after=after, limit=limit, hidden=hidden)

    async def get_ended(
        self,
        kickoff: UUID,
        seconds: float,
        may_wait: Callable[[KickoffStatus], bool] = lambda _: True,
        *,
        or_asking: bool = False,
    ) -> KickoffStatus | None:
        """Returns the same as `get`. If `may_wait` holds for the status, waits at most `seconds` for the end before.
        With `or_asking`, waits only until the kickoff waits for a person.
        """
        clock = asyncio.get_running_loop()
        deadline = clock.time() + seconds
        while True:
            with self._ends.of(kickoff) as notice:
                found = await self.get(kickoff)
                if found is None or found.state.ended or not may_wait(found):
                    return found
                if or_asking and found.state is State.PENDING_HUMAN_INPUT:
                    return found
                if self._stopping:
                    return found
                if not await notified(notice, deadline - clock.time()):
                    return await self.get(kickoff)

    async def _look_up_facts(self, kickoffs: list[UUID]) -> Sequence[Facts | None]:
        found = await self.reads.facts_of_waiting(kickoffs)
        return [found.get(kickoff) for kickoff in kickoffs]

    async def _look_up(self, kickoffs: list[UUID]) -> Sequence[KickoffStatus | None]:
        found = await self.reads.statuses(kickoffs)
        return [found.get(kickoff) for kickoff in kickoffs]

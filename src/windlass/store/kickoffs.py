"""The kickoff's life in rows, in one place for all who work with it; each move is in the module of its name."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.store import accepting, claiming, ending, reading, reporting
from windlass.store.accepting import Accepted, Backlog, Holder, NewKickoff, Reserved
from windlass.store.claiming import Claimed, Promoted, Remembered
from windlass.store.ending import Interruption
from windlass.store.reading import KickoffStatus
from windlass.store.reporting import Batch, Entry
from windlass.store.workers import WorkerStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.kickoffs.attempts import Attempt
    from windlass.kickoffs.outcome import Outcome
    from windlass.kickoffs.states import State
    from windlass.kickoffs.tasks import TaskRecord, Warning_
    from windlass.kickoffs.usage import TokenUsage
    from windlass.kickoffs.waiting import Facts
    from windlass.store.database import Database, Row

__all__ = [
    "Accepted",
    "Backlog",
    "Batch",
    "Claimed",
    "Entry",
    "Holder",
    "Interruption",
    "KickoffStatus",
    "KickoffStore",
    "NewKickoff",
    "Promoted",
    "Remembered",
    "Reserved",
]

MAX_WAITING = 10_000


class KickoffStore:
    """Every change of state is one guarded statement; the answer says whether it took effect.

    `max_waiting` is how many kickoffs of a deployment may wait that sets no bound of its own.
    """

    def __init__(
        self,
        database: Database,
        *,
        idempotency_lasts: timedelta = timedelta(hours=24),
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._database = database
        self._accepting = accepting.Accepting(database, keep=idempotency_lasts, max_waiting=max_waiting)
        self.workers = WorkerStore(database)

    async def accept(self, batch: Sequence[NewKickoff]) -> Accepted:
        """Inserts and commits them, as far as they may be."""
        return await self._accepting.accept(batch)

    async def reserved(self, reservation: tuple[UUID, UUID, str]) -> Reserved | None:
        return await accepting.reserved(self._database, reservation)

    async def forget_idempotency_keys(self, *, limit: int = 1000) -> int:
        return await accepting.forget_idempotency_keys(self._database, limit=limit)

    async def claim(self, worker: UUID, slots: int, lease: float) -> list[Claimed]:
        """At most `slots` kickoffs that wait, now STARTED under this worker's lease, with their task records written:
        a fair share of each deployment, within one by priority and age.
        """
        return await claiming.claim(self._database, worker, slots, lease)

    async def renew(self, worker: UUID, kickoffs: Sequence[UUID], lease: float) -> dict[tuple[UUID, int], bool]:
        """(id, attempt) of each of them that is still this worker's, and whether it is asked to stop."""
        return await claiming.renew(self._database, worker, kickoffs, lease)

    async def promote(
        self, after: tuple[UUID, str] = claiming.FIRST, *, limit: int = claiming.AT_ONCE
    ) -> claiming.Promoted:
        """Makes those ready whose time has come, and the first of each key that is free."""
        return await claiming.promote(self._database, after, limit)

    async def last_event(self, kickoff: UUID) -> int:
        return await reporting.last_event(self._database, kickoff)

    async def earlier_records(self, kickoff: UUID) -> list[TaskRecord]:
        """As the attempts before have left them."""
        return await claiming.earlier_records(self._database, kickoff)

    async def journal(self, kickoff: UUID) -> list[Remembered]:
        """What earlier attempts have finished, in order."""
        return await claiming.journal(self._database, kickoff)

    async def write_reports(self, kickoff: UUID, attempt: int, batch: Batch) -> bool:
        """False when the kickoff is no longer this attempt's: then nothing was written, and the run is to end.
        Warnings that are there already are not added again.
        """
        return await reporting.write_reports(self._database, kickoff, attempt, batch)

    async def settle(
        self, kickoff: UUID, attempt: int, outcome: Outcome, usage: TokenUsage, warnings: Sequence[Warning_]
    ) -> bool:
        """False when the kickoff went on without this run: its outcome counts for nothing then. Of the warnings, those
        that are there already are not added again.
        """
        return await ending.settle(self._database, kickoff, attempt, outcome, usage, warnings)

    async def put_back(
        self, kickoff: UUID, attempt: int, interruption: Interruption, *, max_losses: int, alone: bool = True
    ) -> State | None:
        """Counts a loss: PENDING, to be tried again after a while, or CANCELLED when it was asked to stop. None when it
        is no longer this attempt's, or was lost too often to run again. `alone` keeps it apart from others from now on.
        """
        return await ending.put_back(self._database, kickoff, attempt, interruption, max_losses=max_losses, alone=alone)

    async def retry(self, kickoff: UUID, attempt: int, interruption: Interruption, *, pause: float) -> bool:
        """A failed run's kickoff waits `pause` seconds and runs again. False when it is no longer this attempt's, or
        was asked to stop.
        """
        return await ending.retry(self._database, kickoff, attempt, interruption, pause=pause)

    async def release(self, worker: UUID, running: Sequence[UUID] = ()) -> list[tuple[UUID, int, State]]:
        """Gives back all that this worker holds but what is `running`, without a loss; (id, attempt, state) of each:
        PENDING, or CANCELLED when it was asked to stop.
        """
        return await ending.release(self._database, worker, running)

    async def reap(self, *, max_losses: int, limit: int = 100) -> list[tuple[UUID, State]]:
        """Takes kickoffs from silent workers; each with the state it has now: PENDING, FAILED when it was lost too
        often, CANCELLED when it was asked to stop.
        """
        return await ending.reap(self._database, max_losses=max_losses, limit=limit)

    async def end_all_leases(self) -> int:
        """For a server that knows that no worker of this database lives: it has just started the database."""
        return await ending.end_all_leases(self._database)

    async def stop(self, kickoff: UUID) -> State | None:
        """Its state now that this is recorded: CANCELLED for one that waited, STARTED for one whose worker is told to
        end it, any other for one that had ended. None for no kickoff of ours.
        """
        return await ending.stop(self._database, kickoff)

    async def statuses(self, ids: Sequence[UUID]) -> dict[UUID, KickoffStatus]:
        return await reading.statuses(self._database, ids)

    async def facts_of_waiting(self, ids: Sequence[UUID]) -> dict[UUID, Facts]:
        """All that says what each of them waits for."""
        return await reading.facts_of_waiting(self._database, ids)

    async def attempts(self, kickoff: UUID, *, limit: int = 100) -> list[Attempt]:
        """Its newest ones, the oldest of them first."""
        return await reading.attempts(self._database, kickoff, limit=limit)

    async def events(self, kickoff: UUID, *, after: int = 0, limit: int = 1000) -> list[Row]:
        return await reporting.events_of(self._database, kickoff, after=after, limit=limit)

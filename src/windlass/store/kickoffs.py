"""Combines all operations on stored kickoffs in one class. Each operation is implemented in the module of its name."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.store import accepting, claiming, ending, reading, reporting
from windlass.store.accepting import Accepted, Backlog, Holder, NewKickoff, Reserved
from windlass.store.audit import COMMAND_LINE
from windlass.store.claiming import Claimed, JournalRow, Promoted, WorkerStore
from windlass.store.ending import OPEN, Interruption, Matching, StopFilter
from windlass.store.files import FileStore
from windlass.store.reading import (
    EventRow,
    KickoffFilter,
    KickoffPage,
    KickoffStatus,
    ListedKickoff,
    NextEvents,
    Pieces,
    Stored,
    WantedEvents,
)
from windlass.store.reporting import Batch, JournalEntry, StoredSoFar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractAsyncContextManager
    from uuid import UUID

    from windlass.kickoffs.files import FileChanges
    from windlass.kickoffs.outcome import Outcome, TokenUsage
    from windlass.kickoffs.states import Attempt, State
    from windlass.kickoffs.tasks import TaskRecord, Warning_
    from windlass.kickoffs.waiting import Facts
    from windlass.store.audit import Actor
    from windlass.store.database import Database

__all__ = [
    "OPEN",
    "Accepted",
    "Backlog",
    "Batch",
    "Claimed",
    "EventRow",
    "Holder",
    "Interruption",
    "JournalEntry",
    "JournalRow",
    "KickoffFilter",
    "KickoffPage",
    "KickoffStatus",
    "KickoffStore",
    "ListedKickoff",
    "Matching",
    "NewKickoff",
    "NextEvents",
    "Pieces",
    "Promoted",
    "Reserved",
    "StopFilter",
    "Stored",
    "WantedEvents",
]

MAX_WAITING = 10_000
USER_SHARE = 0.25


class KickoffStore:
    """Stores kickoffs and changes their states.

    Each change of state is one guarded statement. Its return value reports whether the change took effect.
    `max_waiting` is the queue limit of deployments that set none. `user_share` is the fraction of that limit for one
    user.
    """

    def __init__(
        self,
        database: Database,
        *,
        idempotency_lasts: timedelta = timedelta(hours=24),
        max_waiting: int = MAX_WAITING,
        user_share: float = USER_SHARE,
    ) -> None:
        self._database = database
        self._accepting = accepting.Accepting(
            database, keep=idempotency_lasts, max_waiting=max_waiting, user_share=user_share
        )
        self.workers = WorkerStore(database)
        self.files = FileStore(database)

    async def accept(self, batch: Sequence[NewKickoff]) -> Accepted:
        """Inserts and commits the kickoffs that the queues and keys permit."""
        return await self._accepting.accept(batch)

    async def reserved(self, reservation: tuple[UUID, UUID, str]) -> Reserved | None:
        return await accepting.reserved(self._database, reservation)

    async def forget_idempotency_keys(self, *, limit: int = 1000) -> int:
        return await accepting.forget_idempotency_keys(self._database, limit=limit)

    async def claim(
        self,
        worker: UUID,
        slots: int,
        lease: float,
        *,
        only: Sequence[str] | None = None,
        ended: Sequence[UUID] = (),
        recent: Sequence[UUID] = (),
    ) -> list[Claimed]:
        """Starts at most `slots` waiting kickoffs under this worker's lease, and writes their task records.

        Each deployment gets a fair share of the slots. Within a deployment, priority decides, then age. `only` are the
        slugs of the deployments, None for all. `ended` are kickoffs of this worker that have no process any more and
        are not settled yet: they don't count in the share of their deployment. `recent` are the deployments of its last
        starts, the latest one last.
        """
        return await claiming.claim(self._database, worker, slots, lease, only=only, ended=ended, recent=recent)

    async def renew(self, worker: UUID, kickoffs: Sequence[UUID], lease: float) -> dict[tuple[UUID, int], bool]:
        """Renews the leases of the kickoffs that this worker still holds.

        Returns (id, attempt) of each, with whether a stop is requested.
        """
        return await claiming.renew(self._database, worker, kickoffs, lease)

    async def renew_unlocked(
        self, worker: UUID, kickoffs: Sequence[UUID], lease: float
    ) -> dict[tuple[UUID, int], bool | None]:
        """Renews leases as `renew` does, but waits for no lock of another statement.

        The value of a kickoff whose row is locked is None, and its lease is not renewed.
        """
        return await claiming.renew_unlocked(self._database, worker, kickoffs, lease)

    async def promote(
        self, after: tuple[UUID, str] = claiming.FIRST, *, limit: int = claiming.AT_ONCE
    ) -> claiming.Promoted:
        """Makes kickoffs ready whose time is reached, and the first waiting kickoff of each free concurrency key."""
        return await claiming.promote(self._database, after, limit)

    async def stored_so_far(self, kickoff: UUID) -> StoredSoFar:
        return await reporting.stored_so_far(self._database, kickoff)

    async def earlier_records(self, kickoff: UUID) -> list[TaskRecord]:
        """Returns the task records as the earlier attempts have left them, without their outputs."""
        return await claiming.earlier_records(self._database, kickoff)

    async def journal(self, kickoff: UUID, after: int = 0) -> list[JournalRow]:
        """Returns the next steps that earlier attempts have finished, in order: those after the entry `after`.

        Returns only a part of a large journal, and no entries after the last one.
        """
        return await claiming.journal(self._database, kickoff, after)

    async def answers(self) -> bool:
        """Returns whether the database answers now."""
        return await self._database.answers()

    async def write_reports(self, kickoff: UUID, attempt: int, batch: Batch) -> bool:
        """Writes what a run has reported. Adds only warnings that the kickoff does not have.

        Returns False, and writes nothing, when the kickoff has gone on to another attempt. The caller must end the run.
        """
        return await reporting.write_reports(self._database, kickoff, attempt, batch)

    async def settle(
        self,
        kickoff: UUID,
        attempt: int,
        outcome: Outcome,
        usage: TokenUsage,
        warnings: Sequence[Warning_],
        *,
        changes: FileChanges | None = None,
        last: Batch | None = None,
    ) -> State | None:
        """Writes the outcome as the final state, the changes of the files, and the events and task records of `last`,
        none of which may be large. Adds only warnings that the kickoff does not have.

        Returns the final state. It is CANCELLED when a stop was requested, for every outcome. Returns None, and
        writes nothing, when the kickoff has gone on to another attempt or has ended. Raises Unstorable when PostgreSQL
        refuses a value permanently.
        """
        return await ending.settle(
            self._database, kickoff, attempt, outcome, usage, warnings, changes=changes, last=last
        )

    async def requeue(
        self,
        kickoff: UUID,
        attempt: int,
        interruption: Interruption,
        *,
        max_losses: int,
        isolated: bool = True,
        process_started: bool = True,
    ) -> State | None:
        """Counts a loss, or without `process_started` an attempt that never started. Returns the new state.

        The state is PENDING, to run again after a pause, or CANCELLED when a stop was requested. Returns None, and
        changes nothing, when the kickoff has gone on to another attempt, has had `max_losses` losses, or has had
        MOST_UNSTARTED attempts in a row that never started. With `isolated`, the zygote of its later attempts serves no
        other kickoff.
        """
        return await ending.requeue(
            self._database,
            kickoff,
            attempt,
            interruption,
            max_losses=max_losses,
            isolated=isolated,
            process_started=process_started,
        )

    async def retry(self, kickoff: UUID, attempt: int, interruption: Interruption, *, pause: float) -> bool:
        """Requeues the kickoff of a failed run, to run again after `pause` seconds.

        Returns False, and changes nothing, when the kickoff has gone on to another attempt or a stop was requested.
        """
        return await ending.retry(self._database, kickoff, attempt, interruption, pause=pause)

    async def release(self, worker: UUID, running: Sequence[UUID] = ()) -> list[tuple[UUID, int, State]]:
        """Requeues all kickoffs that this worker holds, except those in `running`, without counting a loss.

        Returns (id, attempt, state) of each. The state is PENDING, or CANCELLED when a stop was requested.
        """
        return await ending.release(self._database, worker, running)

    async def reap(
        self, except_for: Sequence[UUID] = (), *, max_losses: int, limit: int = 100
    ) -> list[tuple[UUID, State]]:
        """Ends the leases that were not renewed in time, and returns each kickoff with its new state. Leaves the
        kickoffs in `except_for`.

        The state is PENDING, FAILED after more than `max_losses` losses or MOST_UNSTARTED attempts in a row that never
        started, or CANCELLED when a stop was requested.
        """
        return await ending.reap(self._database, except_for, max_losses=max_losses, limit=limit)

    async def end_all_leases(self) -> int:
        """Ends all leases at once.

        Only for a server that has just started the database, and so knows that no worker of it is running.
        """
        return await ending.end_all_leases(self._database)

    async def stop(self, kickoff: UUID, by: Actor = COMMAND_LINE) -> State | None:
        """Records a stop request, and who sent it. Returns the state of the kickoff afterwards.

        A waiting kickoff is now CANCELLED. A running one is still STARTED, and its worker is notified. An ended kickoff
        keeps its state. Returns None for an unknown kickoff. The audit log has an entry of the first request.
        """
        return await ending.stop(self._database, kickoff, by)

    async def matching(self, wanted: StopFilter) -> Matching | None:
        """Returns some of the open kickoffs that match and have no stop request; None when there are none."""
        return await ending.matching(self._database, wanted)

    async def stop_waiting(self, kickoffs: Sequence[UUID], by: Actor) -> int:
        """Cancels the waiting kickoffs among these in one transaction, and returns their number.

        The kickoffs are of one deployment. They have one entry of the audit log.
        """
        return await ending.stop_waiting(self._database, kickoffs, by)

    async def statuses(self, ids: Sequence[UUID]) -> dict[UUID, KickoffStatus]:
        return await reading.statuses(self._database, ids)

    def large_members(self, kickoff: UUID) -> AbstractAsyncContextManager[Pieces]:
        """Reads the members of a large status that `statuses` omits."""
        return reading.large_members(self._database, kickoff)

    async def facts_of_waiting(self, ids: Sequence[UUID]) -> dict[UUID, Facts]:
        """Returns the facts from which `kickoffs.waiting` derives why each kickoff waits."""
        return await reading.facts_of_waiting(self._database, ids)

    async def attempts(self, kickoff: UUID, *, limit: int = 100) -> list[Attempt]:
        """Returns the newest `limit` attempts, the oldest of them first."""
        return await reading.attempts(self._database, kickoff, limit=limit)

    async def listed(self, wanted: KickoffFilter, *, limit: int) -> KickoffPage:
        """Returns the newest kickoffs that match, at most `limit`."""
        return await reading.listed(self._database, wanted, limit)

    async def events_of_many(self, wanted: Sequence[WantedEvents]) -> list[NextEvents]:
        """Returns the next events of each, and the state of its kickoff."""
        return await reading.events_of_many(self._database, wanted)

    async def note_streamed(self, kickoffs: Iterable[UUID], keep: timedelta) -> None:
        """Has the writes of these kickoffs' events notify on the channel EVENTS, for the time `keep`."""
        await reading.note_streamed(self._database, kickoffs, keep)

    async def events(
        self, kickoff: UUID, *, after: int = 0, limit: int = 1000, hidden: Sequence[str] = ()
    ) -> list[EventRow]:
        """Returns the next events after the number `after`, except those whose type is in `hidden`.

        At most `limit` events, and fewer if their payloads are large.
        """
        return await reading.events(self._database, kickoff, after=after, limit=limit, hidden=hidden)

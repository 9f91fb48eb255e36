from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from windlass.kickoffs.events import StoredEvent, to_json
from windlass.kickoffs.manifest import Manifest
from windlass.kickoffs.outcome import lost_too_often
from windlass.kickoffs.states import State
from windlass.store.database import Connection, Database, Row, fetch
from windlass.store.named_queries import queries
from windlass.store.storable import storable, storable_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.kickoffs.outcome import Outcome
    from windlass.kickoffs.tasks import TaskRecord, Warning_
    from windlass.kickoffs.usage import TokenUsage

SQL = queries("kickoffs")


@dataclass(frozen=True, slots=True)
class NewKickoff:
    """A row to be. `inputs`, `meta` and `unacted` are JSON text; `request_digest` goes with `idempotency_key`."""

    id: UUID
    deployment_id: UUID
    version_id: UUID
    user_id: UUID | None
    inputs: str
    meta: str | None = None
    unacted: str | None = None
    warnings: str = "[]"
    idempotency_key: str | None = None
    request_digest: bytes | None = None

    @property
    def reservation(self) -> tuple[UUID, UUID, str] | None:
        """Who may not use the same idempotency key twice."""
        if self.idempotency_key is None:
            return None
        return (self.deployment_id, self.user_id or self.deployment_id, self.idempotency_key)


@dataclass(frozen=True, slots=True)
class Reserved:
    """The kickoff that an idempotency key already stands for, and the digest of the request that made it."""

    kickoff_id: UUID
    request_digest: bytes


@dataclass(frozen=True, slots=True)
class Claimed:
    """A kickoff that this worker now runs: its inputs as sent, and its version's source and manifest."""

    id: UUID
    attempt: int
    inputs: dict[str, Any]
    slug: str
    source: dict[str, Any]
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class KickoffStatus:
    """A row as a status shows it; members that hold any JSON are JSON text, to be passed on unread."""

    id: UUID
    deployment_id: UUID
    version_id: UUID
    user_id: UUID | None
    state: State
    reason: str | None
    error: str | None
    attempt: int
    meta: str | None
    warnings: str
    output: str | None
    structured: str | None
    token_usage: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    tasks: str | None
    total_tasks: int | None
    completed_tasks: int | None
    current_task: str | None
    task_outputs: str | None


class KickoffStore:
    """The kickoff's life in rows. Every change of state is one guarded statement; the answer says whether it took
    effect.
    """

    def __init__(self, database: Database, *, idempotency_lasts: timedelta = timedelta(hours=24)) -> None:
        self._database = database
        self._keep = idempotency_lasts

    async def accept(self, batch: Sequence[NewKickoff]) -> set[UUID]:
        """Inserts and commits them; the ids that are rows now. One that is missing has an idempotency key that is
        taken: ask `reserved`.
        """
        (row,) = await self._database.rows(
            SQL["accept"],
            {
                "ids": [new.id for new in batch],
                "deployments": [new.deployment_id for new in batch],
                "versions": [new.version_id for new in batch],
                "users": [new.user_id for new in batch],
                "inputs": [new.inputs for new in batch],
                "metas": [new.meta for new in batch],
                "unacted": [new.unacted for new in batch],
                "warnings": [new.warnings for new in batch],
                "keys": [new.idempotency_key for new in batch],
                "digests": [new.request_digest for new in batch],
                "keep": self._keep,
            },
        )
        return set(row["accepted"] or ())

    async def reserved(self, reservation: tuple[UUID, UUID, str]) -> Reserved | None:
        deployment, principal, key = reservation
        row = await self._database.row(SQL["reserved"], {"deployment": deployment, "principal": principal, "key": key})
        return Reserved(**row) if row else None

    async def forget_idempotency_keys(self, *, limit: int = 1000) -> int:
        return await self._database.execute(SQL["forget_idempotency_keys"], {"limit": limit})

    async def claim(self, worker: UUID, slots: int, lease: float) -> list[Claimed]:
        """The oldest waiting kickoffs, at most `slots`, now STARTED under this worker's lease, with their task records
        written.
        """
        async with self._database.transaction() as connection:
            rows = await fetch(
                connection, SQL["claim"], {"worker": worker, "slots": slots, "lease": timedelta(seconds=lease)}
            )
            if rows:
                await _write_task_records(connection, rows)
        return [_claimed(row) for row in rows]

    async def renew(self, worker: UUID, kickoffs: Sequence[UUID], lease: float) -> set[tuple[UUID, int]]:
        """(id, attempt) of each of them that is still this worker's."""
        values = {"worker": worker, "kickoffs": list(kickoffs), "lease": timedelta(seconds=lease)}
        rows = await self._database.rows(SQL["renew"], values)
        return {(row["id"], row["attempt"]) for row in rows}

    async def last_event(self, kickoff: UUID) -> int:
        row = await self._database.row(SQL["last_event"], {"kickoff": kickoff})
        return int(row["seq"]) if row else 0

    async def write_reports(
        self, kickoff: UUID, attempt: int, events: Sequence[StoredEvent], records: Sequence[TaskRecord]
    ) -> bool:
        """False when the kickoff is no longer this attempt's: then nothing was written, and the run is to end."""
        written = await self._database.rows(
            SQL["write_reports"],
            {"kickoff": kickoff, "attempt": attempt, **_event_columns(events), **_record_columns(records)},
        )
        return bool(written)

    async def settle(
        self, kickoff: UUID, attempt: int, outcome: Outcome, usage: TokenUsage, warnings: Sequence[Warning_]
    ) -> bool:
        """False when the kickoff went on without this run: its outcome counts for nothing then."""
        if not outcome.state.ended:
            raise ValueError(f"no run ends as {outcome.state}")
        return bool(
            await self._database.rows(
                SQL["settle"],
                {
                    "kickoff": kickoff,
                    "attempt": attempt,
                    "state": outcome.state,
                    "reason": outcome.reason,
                    "error": _text(outcome.error),
                    "output": None if outcome.output is None else to_json(outcome.output),
                    "structured": None if outcome.json is None else to_json(outcome.json),
                    "token_usage": to_json(usage.to_json()),
                    "warnings": to_json(storable([warning.to_json() for warning in warnings])),
                },
            )
        )

    async def put_back(self, kickoff: UUID, attempt: int, *, max_losses: int) -> bool:
        """Counts a loss. False when it is no longer this attempt's, or was lost too often to run again."""
        values = {"kickoff": kickoff, "attempt": attempt, "max_losses": max_losses}
        return bool(await self._database.rows(SQL["put_back"], values))

    async def release(self, worker: UUID) -> list[tuple[UUID, int]]:
        """Gives back all that this worker holds, without a loss; (id, attempt) of each."""
        rows = await self._database.rows(SQL["release"], {"worker": worker})
        return [(row["id"], row["attempt"]) for row in rows]

    async def reap(self, *, max_losses: int, limit: int = 100) -> list[tuple[UUID, State]]:
        """Takes kickoffs from silent workers; each with the state it has now: PENDING, or FAILED when it was lost too
        often.
        """
        error = lost_too_often(max_losses)
        rows = await self._database.rows(SQL["reap"], {"max_losses": max_losses, "limit": limit, "error": error})
        return [(row["id"], State(row["state"])) for row in rows]

    async def end_all_leases(self) -> int:
        """For a server that knows that no worker of this database lives: it has just started the database."""
        return await self._database.execute(SQL["end_all_leases"])

    async def statuses(self, ids: Sequence[UUID]) -> dict[UUID, KickoffStatus]:
        rows = await self._database.rows(SQL["statuses"], {"ids": list(ids)})
        return {row["id"]: KickoffStatus(**{**row, "state": State(row["state"])}) for row in rows}

    async def events(self, kickoff: UUID, *, after: int = 0, limit: int = 1000) -> list[Row]:
        return await self._database.rows(SQL["events"], {"kickoff": kickoff, "after": after, "limit": limit})


async def _write_task_records(connection: Connection, rows: list[Row]) -> None:
    again = [row["id"] for row in rows if row["attempt"] > 1]
    if again:
        await connection.execute(SQL["clear_task_records"], {"kickoffs": again})
    await connection.execute(
        SQL["register_task_records"],
        {"kickoffs": [row["id"] for row in rows], "versions": [row["version_id"] for row in rows]},
    )


def _claimed(row: Row) -> Claimed:
    return Claimed(
        id=row["id"],
        attempt=row["attempt"],
        inputs=row["inputs"],
        slug=row["slug"],
        source=row["source"],
        manifest=Manifest.from_json(row["manifest"]),
    )


def _event_columns(events: Sequence[StoredEvent]) -> dict[str, list[Any]]:
    return {
        "seqs": [event.seq for event in events],
        "types": [storable_text(event.type) for event in events],
        "ats": [event.at for event in events],
        "payloads": [event.payload for event in events],
    }


def _record_columns(records: Sequence[TaskRecord]) -> dict[str, list[Any]]:
    return {
        "positions": [record.position for record in records],
        "task_ids": [storable_text(record.task_id) for record in records],
        "task_keys": [record.key for record in records],
        "names": [_text(record.name) for record in records],
        "agents": [_text(record.agent) for record in records],
        "states": [record.state for record in records],
        "registered": [record.registered for record in records],
        "outputs": [None if record.output is None else to_json(record.output) for record in records],
        "seconds": [record.execution_time for record in records],
        "starts": [record.started_at for record in records],
        "ends": [record.finished_at for record in records],
    }


def _text(value: str | None) -> str | None:
    return None if value is None else storable_text(value)

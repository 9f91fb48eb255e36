from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.away import away
from windlass.kickoffs.events import StoredEvent, to_json
from windlass.store.named_queries import queries
from windlass.store.storable import storable, storable_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.kickoffs.tasks import TaskRecord, Warning_
    from windlass.kickoffs.usage import TokenUsage
    from windlass.store.database import Database, Row

SQL = queries("reporting")


@dataclass(frozen=True, slots=True)
class Entry:
    """A finished step for the journal; `record` is sealed, `position` that of its task record, where it has one. With
    `apart` the output in that belongs to the step and is not in the record.
    """

    number: int
    key: str
    record: str
    position: int | None = None
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """What a run tells that is written together. `usage` is that of all attempts, None where it is as it was, and
    `model_calls` how many were begun; `waiting_for` is what the run waits for now.
    """

    events: Sequence[StoredEvent] = ()
    records: Sequence[TaskRecord] = ()
    warnings: Sequence[Warning_] = ()
    entries: Sequence[Entry] = ()
    usage: TokenUsage | None = None
    waiting_for: str | None = None
    model_calls: int = 0

    @property
    def tells(self) -> bool:
        return bool(self.events or self.records or self.warnings or self.entries or self.usage)


async def write_reports(database: Database, kickoff: UUID, attempt: int, batch: Batch) -> bool:
    size = sum(len(record.output or "") for record in batch.records)
    columns = await away(size, lambda: _columns(batch))
    return bool(await database.rows(SQL["write_reports"], {"kickoff": kickoff, "attempt": attempt, **columns}))


def _columns(batch: Batch) -> dict[str, Any]:
    return {
        "warnings": warnings_json(batch.warnings),
        "waiting_for": batch.waiting_for,
        "model_calls": batch.model_calls,
        "token_usage": None if batch.usage is None else to_json(batch.usage.to_json()),
        **_event_columns(batch.events),
        **_record_columns(batch.records),
        **_entry_columns(batch.entries),
    }


async def last_event(database: Database, kickoff: UUID) -> int:
    row = await database.row(SQL["last_event"], {"kickoff": kickoff})
    return int(row["seq"]) if row else 0


async def events_of(database: Database, kickoff: UUID, *, after: int, limit: int) -> list[Row]:
    return await database.rows(SQL["events"], {"kickoff": kickoff, "after": after, "limit": limit})


def warnings_json(warnings: Sequence[Warning_]) -> str:
    return to_json(storable([warning.to_json() for warning in warnings]))


def text(value: str | None) -> str | None:
    return None if value is None else storable_text(value)


def _event_columns(events: Sequence[StoredEvent]) -> dict[str, list[Any]]:
    return {
        "seqs": [event.seq for event in events],
        "types": [storable_text(event.type) for event in events],
        "ats": [event.at for event in events],
        "payloads": [event.payload for event in events],
    }


def _entry_columns(entries: Sequence[Entry]) -> dict[str, list[Any]]:
    return {
        "numbers": [entry.number for entry in entries],
        "entry_keys": [storable_text(entry.key) for entry in entries],
        "entry_positions": [entry.position for entry in entries],
        "entries": [entry.record for entry in entries],
        "aparts": [entry.apart for entry in entries],
    }


def _record_columns(records: Sequence[TaskRecord]) -> dict[str, list[Any]]:
    return {
        "positions": [record.position for record in records],
        "task_ids": [storable_text(record.task_id) for record in records],
        "task_keys": [record.key for record in records],
        "names": [text(record.name) for record in records],
        "agents": [text(record.agent) for record in records],
        "states": [record.state for record in records],
        "registered": [record.registered for record in records],
        "outputs": [None if record.output is None else to_json(record.output) for record in records],
        "seconds": [record.execution_time for record in records],
        "starts": [record.started_at for record in records],
        "ends": [record.finished_at for record in records],
    }

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windlass.kickoffs.events import StoredEvent, to_json
from windlass.store.named_queries import queries
from windlass.store.storable import storable, storable_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.kickoffs.tasks import TaskRecord, Warning_
    from windlass.store.database import Database, Row

SQL = queries("reporting")


async def write_reports(
    database: Database,
    kickoff: UUID,
    attempt: int,
    events: Sequence[StoredEvent],
    records: Sequence[TaskRecord],
    *,
    warnings: Sequence[Warning_],
    waiting_for: str | None,
) -> bool:
    written = await database.rows(
        SQL["write_reports"],
        {
            "kickoff": kickoff,
            "attempt": attempt,
            "warnings": warnings_json(warnings),
            "waiting_for": waiting_for,
            **_event_columns(events),
            **_record_columns(records),
        },
    )
    return bool(written)


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

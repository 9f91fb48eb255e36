from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.kickoffs.attempts import Attempt
from windlass.kickoffs.states import State
from windlass.kickoffs.waiting import MOST_COUNTED, Facts
from windlass.store.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from windlass.store.database import Database, Row

SQL = queries("reading")


@dataclass(frozen=True, slots=True)
class KickoffStatus:
    """A row as a status shows it; members that hold any JSON are JSON text, to be passed on unread.

    `waiting_for` is what the worker of a kickoff that was started says that it waits for.
    """

    id: UUID
    deployment_id: UUID
    version_id: UUID
    user_id: UUID | None
    state: State
    reason: str | None
    error: str | None
    attempt: int
    waiting_for: str | None
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


async def statuses(database: Database, ids: Sequence[UUID]) -> dict[UUID, KickoffStatus]:
    rows = await database.rows(SQL["statuses"], {"ids": list(ids)}, soon=True)
    return {row["id"]: KickoffStatus(**{**row, "state": State(row["state"])}) for row in rows}


async def facts_of_waiting(database: Database, ids: Sequence[UUID]) -> dict[UUID, Facts]:
    rows = await database.rows(SQL["waiting"], {"ids": list(ids), "most": MOST_COUNTED}, soon=True)
    return {row.pop("id"): _facts(row) for row in rows}


async def attempts(database: Database, kickoff: UUID, *, limit: int) -> list[Attempt]:
    rows = await database.rows(SQL["attempts"], {"kickoff": kickoff, "limit": limit}, soon=True)
    return [Attempt(**row) for row in rows]


def _facts(row: Row) -> Facts:
    holder = {
        "holder": str(row["holder"]) if row["holder"] else None,
        "holder_state": State(row["holder_state"]) if row["holder_state"] else None,
    }
    return Facts(**{**row, **holder, "state": State(row["state"])})

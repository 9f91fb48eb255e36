"""Reads kickoffs for the pages that people look at: lists with filters, one kickoff with bounded parts of its values,
and the events of its timeline and log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from windlass.kickoffs.states import State
from windlass.kickoffs.webhooks import Webhook
from windlass.store.database import queries
from windlass.store.kickoff_list import KickoffList

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID


SQL = queries("executions")
BEGINNING, ENDING = 2000, 600
"""Characters of the beginning and the end of a large payload in a timeline."""
MOST_MARKS = 10_000
"""Events of one timeline."""
MOST_TASKS = 1000
LARGEST_REQUEST = 1024 * 1024
"""Bytes of stored inputs with which a kickoff is started again from a list."""

Member = Literal["inputs", "meta", "warnings", "output", "structured"]


@dataclass(frozen=True, slots=True)
class Execution:
    """One kickoff without its large values. `limits` and `token_usage` are JSON text.

    `failed_task` is the task that failed, or the one that ran at the end. `last_event` is the number of its last event.
    """

    id: UUID
    slug: str
    deployment_id: UUID
    version_id: UUID
    version: int | None
    state: State
    reason: str | None
    error: str | None
    attempt: int
    user: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    paused_for: timedelta
    run_at: datetime | None
    stopping: bool
    priority: int
    concurrency_key: str | None
    limits: str | None
    token_usage: str | None
    model_calls: int
    file_count: int
    waiting_for: str | None
    total_tasks: int
    completed_tasks: int
    failed_task: str | None
    last_event: int
    started_by: str | None
    stopped_by: str | None
    has_webhooks: bool


class Beginning(NamedTuple):
    """The beginning of a member as JSON text, and the size of the whole text in bytes."""

    beginning: str
    bytes: int

    @property
    def is_whole(self) -> bool:
        return len(self.beginning.encode()) == self.bytes


class TaskRow(NamedTuple):
    position: int
    task_id: str
    name: str | None
    agent: str | None
    state: str
    attempt: int | None
    started_at: datetime | None
    finished_at: datetime | None
    execution_time: float | None


class Mark(NamedTuple):
    """An event of a timeline. `beginning` is its payload as JSON text, or the first BEGINNING characters of it. Then
    `ending` are the last ENDING characters.
    """

    seq: int
    attempt: int
    type: str
    at: datetime
    beginning: str
    ending: str | None


class LoggedEvent(NamedTuple):
    """An event of a log. `payload` is JSON text, which is cut if `cut`."""

    seq: int
    attempt: int
    type: str
    at: datetime
    payload: str
    cut: bool = False


class RequestRow(NamedTuple):
    """What a kickoff was started with. `inputs` and `meta` are JSON text, `inputs` is None if it is too large."""

    id: UUID
    slug: str
    inputs: str | None
    meta: str | None


class OwnWebhook(NamedTuple):
    """A webhook that a kickoff was started with."""

    kickoff: UUID
    host: str
    webhook: Webhook


class ExecutionStore(KickoffList):
    """Reads lists of kickoffs, and one kickoff in detail."""

    async def get(self, kickoff: UUID) -> Execution | None:
        row = await self._database.row(SQL["head"], {"kickoff": kickoff}, soon=True)
        return Execution(**{**row, "state": State(row["state"])}) if row else None

    async def member(self, kickoff: UUID, member: Member, *, most: int) -> Beginning | None:
        """Returns the first `most` characters of a member. None: it has no value."""
        values = {"kickoff": kickoff, "member": member, "most": most}
        row = await self._database.row(SQL["member"], values, soon=True)
        return Beginning(**row) if row else None

    async def tasks(self, kickoff: UUID) -> list[TaskRow]:
        rows = await self._database.rows(SQL["tasks"], {"kickoff": kickoff, "limit": MOST_TASKS}, soon=True)
        return [TaskRow(**row) for row in rows]

    async def marks(self, kickoff: UUID, types: Sequence[str], *, after: int = 0) -> list[Mark]:
        """Returns the next MOST_MARKS events of these types after the number `after`."""
        values = {
            "kickoff": kickoff,
            "types": list(types),
            "after": after,
            "beginning": BEGINNING,
            "ending": ENDING,
            "limit": MOST_MARKS,
        }
        return [Mark(**row) for row in await self._database.rows(SQL["marks"], values, soon=True)]

    async def events(self, kickoff: UUID, seqs: Sequence[int]) -> list[LoggedEvent]:
        """Returns events by their numbers, with their whole payloads."""
        values = {"kickoff": kickoff, "seqs": list(seqs)}
        return [LoggedEvent(**row) for row in await self._database.rows(SQL["events"], values, soon=True)]

    async def latest(
        self, kickoff: UUID, types: Sequence[str], *, before: int = 2**62, limit: int, most: int
    ) -> list[LoggedEvent]:
        """Returns the newest events of these types before a number, newest first, with `most` characters of each."""
        values = {"kickoff": kickoff, "types": list(types), "before": before, "limit": limit, "most": most}
        return [LoggedEvent(**row) for row in await self._database.rows(SQL["latest"], values, soon=True)]

    async def own_webhooks(self, ids: Sequence[UUID]) -> list[OwnWebhook]:
        """Returns the webhooks of these kickoffs, without those that all kickoffs of their deployment have."""
        rows = await self._database.rows(SQL["own_webhooks"], {"ids": list(ids)}, soon=True)
        return [OwnWebhook(row["kickoff"], row["host"], Webhook.of_json(row["endpoint"], row["hooks"])) for row in rows]

    async def requests(self, ids: Sequence[UUID]) -> list[RequestRow]:
        """Returns what the kickoffs were started with, in their order."""
        rows = await self._database.rows(SQL["requests"], {"ids": list(ids), "most": LARGEST_REQUEST}, soon=True)
        return [RequestRow(**row) for row in rows]

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from windlass.kickoffs.events import HIDDEN_FROM_USERS
from windlass.kickoffs.states import Attempt, State
from windlass.kickoffs.waiting import MOST_COUNTED, Facts
from windlass.kickoffs.webhooks import CAUSES, Hook
from windlass.store.database import queries
from windlass.store.kickoff_list import KickoffList

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from windlass.store.database import Connection, Row

SQL = queries("reading")
MOST_STORED = 32 * 1024
"""The largest stored size of a status, in bytes, that is read together with others. Values may be compressed."""
MOST_TOGETHER = 256 * 1024
"""The largest size of the same status as text. Compressed values can be many times as large as text."""
PIECE = 1024 * 1024
"""Bytes of a large member that are read at a time."""
PARTS_OF_AN_OUTPUT = 3
"""The number of parts in which the statement `large_outputs` returns each task output."""
PAGE_BYTES = 2 * 1024 * 1024
"""Bytes of payloads in one page of events. A page has at least one event, of any size."""
STREAMED_EVENTS, STREAMED_BYTES = 200, 256 * 1024
"""The most events, and bytes of their payloads, that a stream reads at once. It reads at least one event, of any size.
"""
MOST_FILES = 100
"""Files that a status lists."""
LARGEST_STEP = 64 * 1024
"""Bytes of a step that a status has at most. A larger one has no data."""
LARGE_SECONDS = 60.0
"""The time limit for reading all members of one large status."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A member of a large status that `statuses` has not read; `large_members` reads it."""

    member: str


Text = str | Stored


@dataclass(frozen=True, slots=True)
class KickoffStatus:
    """The row of a kickoff with the data of its status.

    Members with arbitrary JSON are JSON text, which is passed on unread, or Stored where the status is `large`.
    `waiting_for` is what a started kickoff waits for, as reported by its worker. `paused_for` is the time in which it
    waited for a person without a process, `human_input` the question that waits for an answer. `files` has the first
    MOST_FILES of `file_count` files.
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
    meta: Text | None
    warnings: Text
    output: Text | None
    structured: Text | None
    token_usage: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    paused_for: timedelta
    human_input: Text | None
    tasks: Text | None
    total_tasks: int | None
    completed_tasks: int | None
    current_task: str | None
    task_outputs: Text | None
    file_count: int
    files: str | None
    large: bool


@dataclass(frozen=True, slots=True)
class KickoffDetails:
    """What the profile `live` adds to a status. `last_step` and `last_task` are JSON text."""

    started_by: str | None
    user_id: UUID | None
    read_at: datetime
    events_count: int
    last_step: str | None
    last_task: str | None
    current_agent: str | None
    updated_at: datetime | None


def _status(row: Row) -> KickoffStatus:
    omitted: list[str | None] | None = row.pop("omitted")
    if omitted is not None:
        row.update({member: Stored(member) for member in omitted if member})
        row["warnings"] = row["warnings"] or "[]"
    return KickoffStatus(**{**row, "state": State(row["state"])}, large=omitted is not None)


Pieces = Callable[[Stored], AsyncIterator[bytes]]
"""Yields the JSON text of a member in pieces, as in a status that is not large. No piece: the kickoff was deleted."""


async def _pieces(connection: Connection, kickoff: UUID, member: str) -> AsyncIterator[bytes]:
    values = {"kickoff": kickoff, "member": member, "piece": PIECE}
    if member == "task_outputs":
        async for piece in _outputs(connection, values):
            yield piece
        return
    query = SQL["large_tasks"] if member == "tasks" else SQL["large_member"]
    async for row in connection.cursor(binary=True).stream(query, values):
        yield row["piece"]


async def _outputs(connection: Connection, values: Row) -> AsyncIterator[bytes]:
    """Yields the outputs as the JSON list that `statuses` makes."""
    last = -1
    async for row in connection.cursor(binary=True).stream(SQL["large_outputs"], values):
        place = row["place"]
        if place < last:
            raise RuntimeError(f"PostgreSQL returned the task outputs out of order: place {place} after {last}")
        if place % PARTS_OF_AN_OUTPUT == 0 and place != last:
            yield b"[" if last < 0 else b","
        last = place
        yield row["piece"]
    if last >= 0:
        yield b"]"


class EventRow(NamedTuple):
    """An event of a page. `payload` is JSON text. `more` is true if the kickoff has later events."""

    seq: int
    attempt: int
    type: str
    at: datetime
    payload: str
    more: bool


@dataclass(frozen=True, slots=True)
class WantedEvents:
    """The events of a kickoff after the number `after`; `with_hidden` also those that users may not see."""

    kickoff: UUID
    after: int
    with_hidden: bool


@dataclass(frozen=True, slots=True)
class NextEvents:
    """The next events of a kickoff, and its state at that moment. `state` is None for a kickoff that does not exist."""

    events: tuple[EventRow, ...]
    state: State | None

    @property
    def is_last(self) -> bool:
        return not self.events and (self.state is None or self.state.ended)


def _next_events(rows: list[Row]) -> NextEvents:
    (state,) = {row.pop("state") for row in rows}
    events = tuple(EventRow(**row, more=False) for row in rows if row["seq"] is not None)
    return NextEvents(events, None if state is None else State(state))


def _facts(row: Row) -> Facts:
    holder = {
        "holder": str(row["holder"]) if row["holder"] else None,
        "holder_state": State(row["holder_state"]) if row["holder_state"] else None,
    }
    return Facts(**{**row, **holder, "state": State(row["state"])})


class KickoffReads(KickoffList):
    """Reads lists, statuses and events of kickoffs."""

    async def statuses(self, ids: Sequence[UUID]) -> dict[UUID, KickoffStatus]:
        values = {"ids": list(ids), "most_stored": MOST_STORED, "most": MOST_TOGETHER, "most_files": MOST_FILES}
        rows = await self._database.rows(SQL["statuses"], values, soon=True)
        return {row["id"]: _status(row) for row in rows}

    @asynccontextmanager
    async def large_members(self, kickoff: UUID) -> AsyncIterator[Pieces]:
        """Reads the members of a large status that `statuses` omits.

        Reads all members in one snapshot. Holds a connection, and at most a few pieces in memory.
        """
        async with (
            self._database.connection(patient=True) as connection,
            asyncio.timeout(LARGE_SECONDS),
            connection.transaction(),
        ):
            await connection.execute(SQL["one_moment"])
            await connection.execute(SQL["in_order"])
            yield lambda stored: _pieces(connection, kickoff, stored.member)

    async def details(self, kickoff: UUID) -> KickoffDetails | None:
        values = {"kickoff": kickoff, "steps": list(CAUSES[Hook.STEP]), "most": LARGEST_STEP}
        row = await self._database.row(SQL["details"], values, soon=True)
        return KickoffDetails(**row) if row else None

    async def facts_of_waiting(self, ids: Sequence[UUID]) -> dict[UUID, Facts]:
        """Returns the facts from which `kickoffs.waiting` derives why each kickoff waits."""
        rows = await self._database.rows(SQL["waiting"], {"ids": list(ids), "most": MOST_COUNTED}, soon=True)
        return {row.pop("id"): _facts(row) for row in rows}

    async def attempts(self, kickoff: UUID, *, limit: int = 100) -> list[Attempt]:
        """Returns the newest `limit` attempts, the oldest of them first."""
        rows = await self._database.rows(SQL["attempts"], {"kickoff": kickoff, "limit": limit}, soon=True)
        return [Attempt(**row) for row in rows]

    async def events_of_many(self, wanted: Sequence[WantedEvents]) -> list[NextEvents]:
        """Returns the next events of each, and the state of its kickoff.

        Returns the next events of each: at most STREAMED_EVENTS, and STREAMED_BYTES unless it is one event.
        """
        rows = await self._database.rows(
            SQL["events_of_many"],
            {
                "kickoffs": [one.kickoff for one in wanted],
                "afters": [one.after for one in wanted],
                "with_hidden": [one.with_hidden for one in wanted],
                "hidden": list(HIDDEN_FROM_USERS),
                "limit": STREAMED_EVENTS,
                "most_bytes": STREAMED_BYTES,
            },
            soon=True,
        )
        found: list[list[Row]] = [[] for _ in wanted]
        for row in rows:
            found[row.pop("place") - 1].append(row)
        return [_next_events(of_one) for of_one in found]

    async def events(
        self, kickoff: UUID, *, after: int = 0, limit: int = 1000, hidden: Sequence[str] = ()
    ) -> list[EventRow]:
        """Returns the next events after the number `after`, except those whose type is in `hidden`.

        At most `limit` events, and fewer if their payloads are large.
        """
        values = {"kickoff": kickoff, "after": after, "limit": limit, "hidden": list(hidden), "most_bytes": PAGE_BYTES}
        return [EventRow(**row) for row in await self._database.rows(SQL["events"], values, soon=True)]

    async def note_streamed(self, kickoffs: Iterable[UUID], keep: timedelta) -> None:
        """Has the writes of these kickoffs' events notify on the channel EVENTS, for the time `keep`."""
        # In one order, so that two servers don't lock the rows crosswise.
        await self._database.execute(SQL["note_streamed"], {"ids": sorted(kickoffs), "keep": keep})

    async def answers(self) -> bool:
        """Returns whether the database answers now."""
        return await self._database.answers()

"""What is removed when its time is over, in turns of bounded size: each is a transaction of its own, and short."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from psycopg import sql

from windlass.kickoffs.retention import Retention
from windlass.store.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.store.database import Database

SQL = queries("retention")
Details = Literal["events", "journal"]
Table = Literal["events", "journal", "task_records", "attempts"]
DETAILS: tuple[Details, ...] = ("events", "journal")
TABLES: tuple[Table, ...] = ("events", "journal", "task_records", "attempts")
FIRST = UUID(int=0)
EVER = datetime(1970, 1, 1, tzinfo=UTC)
KICKOFFS_AT_ONCE = 50
"""With results of 20 MB, and a thousand tasks each, still less than a statement may take."""
SEEN_AT_ONCE = 1000
ROWS_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class Kept:
    """What a deployment's project says of how long things are kept."""

    deployment: UUID
    slug: str
    retention: Retention


@dataclass(frozen=True, slots=True)
class Ended:
    """Kickoffs that ended long enough ago, and when the last of them did; None when there are none."""

    kickoffs: list[UUID]
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Seen:
    """Kickoffs that a table has rows of: how many were looked at, up to which, and those that are no more."""

    count: int = 0
    last: UUID = FIRST
    orphans: list[UUID] = field(default_factory=list)


class RetentionStore:
    """One statement removes `at_once` kickoffs, or `rows_at_once` rows of theirs, and looks whether `seen_at_once` are
    there.
    """

    def __init__(
        self,
        database: Database,
        *,
        at_once: int = KICKOFFS_AT_ONCE,
        rows_at_once: int = ROWS_AT_ONCE,
        seen_at_once: int = SEEN_AT_ONCE,
    ) -> None:
        self._database = database
        self.at_once = at_once
        self.rows_at_once = rows_at_once
        self._seen_at_once = seen_at_once

    async def deployments(self, after: UUID = FIRST, *, limit: int = 100) -> list[Kept]:
        rows = await self._database.rows(SQL["deployments"], {"after": after, "limit": limit})
        return [Kept(row["id"], row["slug"], Retention.parse(row["retention"] or {})) for row in rows]

    async def ended(self, deployment: UUID, days: float, *, after: datetime = EVER) -> Ended:
        """At most `at_once`, the first after `after`, and those that ended with the last of them."""
        values = {"deployment": deployment, "after": after, "age": timedelta(days=days), "limit": self.at_once}
        rows = await self._database.rows(SQL["ended"], values)
        return Ended([row["id"] for row in rows], rows[-1]["finished_at"] if rows else None)

    async def progress(self, deployment: UUID, what: Details) -> datetime:
        row = await self._database.row(SQL["progress"], {"deployment": deployment, "what": what})
        return row["finished_at"] if row else EVER

    async def set_progress(self, deployment: UUID, what: Details, until: datetime) -> None:
        values = {"deployment": deployment, "what": what, "finished_at": until}
        await self._database.execute(SQL["set_progress"], values)

    async def drop_rows(self, table: Table, kickoffs: Sequence[UUID]) -> int:
        """Some of them: all, when it is less than `rows_at_once`."""
        values = {"kickoffs": list(kickoffs), "limit": self.rows_at_once}
        return await self._database.execute(_of(table, SQL["drop_rows"]), values)

    async def drop_kickoffs(self, kickoffs: Sequence[UUID]) -> int:
        return len(await self._database.rows(SQL["drop_kickoffs"], {"kickoffs": list(kickoffs)}))

    async def seen(self, table: Table, after: UUID) -> Seen:
        row = await self._database.row(_of(table, SQL["seen"]), {"after": after, "limit": self._seen_at_once})
        return Seen(row["count"], row["last"], row["orphans"] or []) if row and row["count"] else Seen()


def _of(table: Table, statement: sql.SQL) -> sql.SQL:
    return sql.SQL(statement.format(table=sql.Identifier(table)).as_string())

"""Removes data after its retention time, in short transactions of bounded size."""

# See docs/decisions/store.md#retention-remembers-how-far-it-came

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from psycopg import sql

from windlass.kickoffs.ids import FIRST_ID, first_id
from windlass.kickoffs.retention import Retention
from windlass.store.audit import REMOVAL, Change, record
from windlass.store.database import Store, fetch, filled, queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.store.audit import Actor
    from windlass.store.database import Database

SQL = queries("retention")
Details = Literal["events", "journal", "deliveries"]
Table = Literal[
    "events", "journal", "files", "file_chunks", "deliveries", "task_records", "attempts", "webhooks", "questions"
]
DETAILS: tuple[Details, ...] = ("events", "journal", "deliveries")
LARGE: tuple[Table, ...] = (*DETAILS, "files", "file_chunks")
"""Tables whose rows are removed in parts before the kickoff. A file is removed before its chunks."""
TABLES: tuple[Table, ...] = (*LARGE, "task_records", "attempts", "webhooks", "questions")
EVER = datetime(1970, 1, 1, tzinfo=UTC)
KICKOFFS_AT_ONCE = 50
"""The removal of so many kickoffs with results of 20 MB and a thousand tasks each stays below the statement timeout."""
SEEN_AT_ONCE = 1000
ROWS_AT_ONCE = 5000
CHUNKS_AT_ONCE = 200
"""Each chunk of a file has up to 256 KB."""


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """The retention times that the settings of a deployment or its project set."""

    deployment: UUID
    slug: str
    retention: Retention


@dataclass(frozen=True, slots=True)
class Ended:
    """Kickoffs whose retention has ended. `until` is the latest of the times at which they ended."""

    kickoffs: list[UUID]
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Seen:
    """Kickoffs of which a table has rows.

    `count` is how many were checked, `last` the last of them. `orphans` are those that no longer exist.
    """

    count: int = 0
    last: UUID = FIRST_ID
    orphans: list[UUID] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a search. `last` is the last kickoff that was checked, None when there are no more."""

    last: UUID | None
    ended: list[UUID]


class RetentionStore(Store):
    """Finds and removes old data.

    One statement removes at most `at_once` kickoffs or `rows_at_once` of their rows, or checks whether `seen_at_once`
    kickoffs still exist.
    """

    def __init__(
        self,
        database: Database,
        *,
        at_once: int = KICKOFFS_AT_ONCE,
        rows_at_once: int = ROWS_AT_ONCE,
        seen_at_once: int = SEEN_AT_ONCE,
    ) -> None:
        super().__init__(database)
        self.at_once = at_once
        self.rows_at_once = rows_at_once
        self._seen_at_once = seen_at_once

    async def deployments(self, after: UUID = FIRST_ID, *, limit: int = 100) -> list[RetentionSettings]:
        rows = await self._database.rows(SQL["deployments"], {"after": after, "limit": limit})
        return [
            RetentionSettings(
                row["id"], row["slug"], Retention.parse({**(row["of_project"] or {}), **(row["own"] or {})})
            )
            for row in rows
        ]

    async def ended(self, deployment: UUID, days: float, *, after: datetime = EVER) -> Ended:
        """Returns the first `at_once` that ended after `after`, and all that ended at the same time as the last."""
        values = {"deployment": deployment, "after": after, "age": timedelta(days=days), "limit": self.at_once}
        rows = await self._database.rows(SQL["ended"], values)
        return Ended([row["id"] for row in rows], rows[-1]["finished_at"] if rows else None)

    async def progress(self, deployment: UUID, what: Details) -> datetime:
        row = await self._database.row(SQL["progress"], {"deployment": deployment, "what": what})
        return row["finished_at"] if row else EVER

    async def set_progress(self, deployment: UUID, what: Details, until: datetime) -> None:
        values = {"deployment": deployment, "what": what, "finished_at": until}
        await self._database.execute(SQL["set_progress"], values)

    def most_rows(self, table: Table) -> int:
        """Returns the number of rows that one transaction removes at most."""
        return min(self.rows_at_once, CHUNKS_AT_ONCE) if table == "file_chunks" else self.rows_at_once

    async def drop_rows(self, table: Table, kickoffs: Sequence[UUID]) -> int:
        """Removes some rows and returns their number. A number below `most_rows` means that all are removed."""
        values = {"kickoffs": list(kickoffs), "limit": self.most_rows(table)}
        return await self._database.execute(_of(table, SQL["drop_rows"]), values)

    async def drop_audit(self, days: float) -> int:
        """Removes old entries of the audit log. A number below `rows_at_once` means that all are removed."""
        before = first_id(datetime.now(UTC), -timedelta(days=days))
        return await self._database.execute(SQL["drop_audit"], {"before": before, "limit": self.rows_at_once})

    async def drop_kickoffs(self, kickoffs: Sequence[UUID]) -> int:
        return len(await self._database.rows(SQL["drop_kickoffs"], {"kickoffs": list(kickoffs)}))

    async def delete_kickoffs(self, kickoffs: Sequence[UUID], by: Actor = REMOVAL) -> list[UUID]:
        """Deletes the ended kickoffs among these, with their idempotency keys, and returns them.

        Each has an entry of the audit log, unless `by` is the server. Remove their events and journals before: these
        can be many rows.
        """
        async with self._database.transaction() as connection:
            rows = await fetch(connection, SQL["delete_kickoffs"], {"kickoffs": list(kickoffs)})
            for row in rows if by.kind != "server" else ():
                facts = {name: row[name] for name in ("deployment", "state", "started_by")}
                await record(connection, Change(by, "kickoff.delete", str(row["id"]), facts))
        return [row["id"] for row in rows]

    async def note(self, change: Change) -> None:
        """Writes an entry of the audit log before the deletions that it is about."""
        async with self._database.transaction() as connection:
            await record(connection, change)

    async def kickoffs_of(self, user: UUID, after: UUID = FIRST_ID) -> Page:
        """Checks the next kickoffs of all users after `after`, and returns those of this user that have ended."""
        values = {"user": user, "after": after, "limit": self.rows_at_once}
        row = await self._database.row(SQL["kickoffs_of"], values)
        return Page(row["last"], row["ended"] or []) if row else Page(None, [])

    async def open_kickoffs(self, user: UUID) -> int:
        row = await self._database.row(SQL["open_kickoffs"], {"user": user})
        return int(row["count"]) if row else 0

    async def delete_user(self, user: UUID) -> None:
        """Deletes the user with all tokens and idempotency keys."""
        async with self._database.transaction() as connection:
            await connection.execute(SQL["delete_user"], {"user": user})
            await connection.execute(SQL["delete_user_row"], {"user": user})

    async def seen(self, table: Table, after: UUID) -> Seen:
        row = await self._database.row(_of(table, SQL["seen"]), {"after": after, "limit": self._seen_at_once})
        return Seen(row["count"], row["last"], row["orphans"] or []) if row and row["count"] else Seen()


def _of(table: Table, statement: sql.SQL) -> sql.SQL:
    return filled(statement, table=sql.Identifier(table))

"""A witness within PostgreSQL: triggers write down each change of the rows of kickoffs, in its own transaction."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import class_row, dict_row

from windlass.kickoffs.states import MOVES, State

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

INSTALL = Path(__file__).with_name("audit.sql")

ENDED = [state.value for state in State if state.ended]

MORE_THAN_ONE_END = """
SELECT kickoff_id, count(*) AS ends
  FROM audit
 WHERE source = 'kickoffs' AND after = ANY (%(ended)s) AND before IS DISTINCT FROM after
 GROUP BY kickoff_id
HAVING count(*) > 1
"""
WITHOUT_END = "SELECT id FROM kickoffs WHERE state <> ALL (%(ended)s)"
MOVED = """
SELECT DISTINCT before, after FROM audit WHERE source = 'kickoffs' AND before <> after
"""
LATE_ROWS = """
SELECT late.*
  FROM audit AS late
  JOIN (SELECT kickoff_id, attempt, min(seq) AS seq FROM audit WHERE source = 'kickoffs' GROUP BY 1, 2) AS first
    ON first.kickoff_id = late.kickoff_id AND first.attempt > late.attempt AND late.seq > first.seq
 ORDER BY late.seq
"""
CHANGES = "SELECT * FROM audit WHERE source = 'kickoffs' ORDER BY seq"
ENTRIES = """
SELECT kickoff_id, position, min(at) AS at
  FROM audit
 WHERE source = 'journal' AND position IS NOT NULL
 GROUP BY kickoff_id, position
"""


@dataclass(frozen=True, slots=True)
class Change:
    """A row of the audit table."""

    seq: int
    at: datetime
    source: str
    kickoff_id: UUID
    attempt: int
    before: str | None
    after: str
    position: int | None
    lease_until: datetime | None


@dataclass(slots=True)
class Right:
    """When an attempt's run may be alive: from `since` to the end of its lease, or to the row's going on without it.

    `succeeded` says that the run ended well: its process may be alive for others then.
    """

    kickoff_id: UUID
    attempt: int
    since: datetime
    until: datetime
    succeeded: bool = False


class Audit:
    """`url` is of the database itself, for one that is not cut off."""

    def __init__(self, url: str) -> None:
        self._url = url

    def install(self) -> None:
        with psycopg.connect(self._url) as connection:
            connection.execute(INSTALL.read_bytes())

    def rows(self, query: str, **values: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self._url, row_factory=dict_row, connect_timeout=10) as connection:
            return connection.execute(query.encode(), {"ended": ENDED, **values}).fetchall()

    def without_end(self) -> list[UUID]:
        return [row["id"] for row in self.rows(WITHOUT_END)]

    def more_than_one_end(self) -> list[UUID]:
        return [row["kickoff_id"] for row in self.rows(MORE_THAN_ONE_END)]

    def wrong_moves(self) -> list[tuple[str, str]]:
        moved = [(row["before"], row["after"]) for row in self.rows(MOVED)]
        return [(before, after) for before, after in moved if State(after) not in MOVES[State(before)]]

    def late_rows(self) -> list[dict[str, Any]]:
        """Of attempt n, written after the first row of attempt n + 1."""
        return self.rows(LATE_ROWS)

    def journaled_at(self) -> dict[tuple[UUID, int], datetime]:
        """When the task at this position of this kickoff went into the journal."""
        return {(row["kickoff_id"], row["position"]): row["at"] for row in self.rows(ENTRIES)}

    def rights(self) -> dict[UUID, list[Right]]:
        """By kickoff, of its attempts in order."""
        with psycopg.connect(self._url, row_factory=class_row(Change)) as connection:
            changes = connection.execute(CHANGES.encode()).fetchall()
        found: dict[UUID, list[Right]] = {}
        for change in changes:
            note(change, found.setdefault(change.kickoff_id, []))
        return found


def note(change: Change, rights: list[Right]) -> None:
    if change.after == State.STARTED and change.lease_until:
        if not rights or rights[-1].attempt != change.attempt:
            rights.append(Right(change.kickoff_id, change.attempt, change.at, change.lease_until))
        else:
            rights[-1].until = change.lease_until
    elif change.before == State.STARTED and rights:
        rights[-1].until = min(rights[-1].until, change.at)
        rights[-1].succeeded = change.after == State.SUCCESS

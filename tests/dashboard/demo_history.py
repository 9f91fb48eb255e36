"""Copies of a few runs, spread over a week: a server that was used."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import psycopg
from psycopg.sql import SQL, Identifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import Connection

DAYS = 7
RUNS = 400
TIMES = {
    "kickoffs": ("created_at", "started_at", "finished_at"),
    "task_records": ("started_at", "finished_at"),
    "attempts": ("started_at", "ended_at"),
    "events": ("at",),
}
"""The tables of a run, and the columns with its times."""

COUNTS = ("statistics_hours", "statistics_durations", "statistics_minutes", "statistics_waits")
COUNTED_WITHIN = 150.0
"""Seconds: the server counts every minute."""
UNCOUNTED = "SELECT 1 FROM statistics_progress WHERE counted_until < now() - interval '5 minutes'"
ENDED = SQL("SELECT id::text, created_at FROM kickoffs WHERE finished_at IS NOT NULL")
COLUMNS = SQL("SELECT column_name FROM information_schema.columns WHERE table_name = %s AND is_generated = 'NEVER'")


def connected(url: str) -> Connection:
    return psycopg.connect(url)


def copy_over_a_week(connection: Connection, runs: Sequence[str]) -> None:
    """Adds copies of the ended runs, with ids in the order of their times."""
    choice = random.Random(7)
    now = datetime.now(UTC)
    begun: dict[str, datetime] = dict(connection.execute(ENDED).fetchall())
    found = [run for run in runs if run in begun]
    for number in range(RUNS):
        share = (number / RUNS) ** 0.9
        at = now - timedelta(days=DAYS) * (1 - share) - timedelta(minutes=choice.uniform(3, 12))
        run = choice.choice(found)
        new = new_id(at, number)
        for table, times in TIMES.items():
            copy(connection, table, times, run, new, at - begun[run])
    for table in COUNTS:
        connection.execute(SQL("DELETE FROM {}").format(Identifier(table)))
    connection.execute("UPDATE statistics_progress SET counted_until = date_trunc('hour', now() - interval '24 hours')")
    connection.commit()
    end = time.monotonic() + COUNTED_WITHIN
    while connection.execute(UNCOUNTED).fetchone() and time.monotonic() < end:
        connection.commit()
        time.sleep(1)


def new_id(at: datetime, number: int) -> UUID:
    """A UUIDv7 of this time."""
    return UUID(f"{int(at.timestamp() * 1000):012x}7{number % 0xFFF:03x}8{random.Random(number).getrandbits(60):015x}")


def copy(connection: Connection, table: str, times: tuple[str, ...], run: str, new: UUID, later: timedelta) -> None:
    names = [name for (name,) in connection.execute(COLUMNS, (table,)).fetchall()]
    key = "id" if table == "kickoffs" else "kickoff_id"
    columns = [Identifier(name) for name in names]
    values = [
        SQL("%(new)s") if name == key else SQL("{} + %(later)s" if name in times else "{}").format(Identifier(name))
        for name in names
    ]
    statement = SQL("INSERT INTO {} ({}) SELECT {} FROM {} WHERE {} = %(run)s").format(
        Identifier(table), SQL(", ").join(columns), SQL(", ").join(values), Identifier(table), Identifier(key)
    )
    connection.execute(statement, {"new": new, "later": later, "run": run})

"""Counts what happened to kickoffs, and reads the numbers of the last 24 hours.

A side job counts new moves once a minute, into rows for each minute and hour. A read adds the moves that are not
counted yet. Counts stay when a kickoff is deleted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

from psycopg import sql

from windlass.kickoffs.ids import CLOCKS_APART, first_id
from windlass.kickoffs.states import State
from windlass.store.database import Store, fetch, filled, queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from windlass.store.database import Row

SQL = queries("statistics")
HOURS = 24
"""The hours of the statistics of a crew and of the server. The last one is the current hour, which is not over."""
MINUTES = 60
KEEP = timedelta(hours=25)
LAG = timedelta(minutes=2)
"""A move is visible when its transaction is committed. No transaction of the server takes longer than this."""
PART = timedelta(hours=1)
"""What one transaction counts."""
MOST_UNCOUNTED = timedelta(minutes=15)
"""A read counts so much itself. When no server has counted for longer, the numbers end at `counted_until`."""
MOST_ERROR = 300
"""Characters of an error."""
STEP = 1.1
"""The ratio of the limits of a bucket of durations: the function duration_bucket in functions/statistics.sql."""
FORGETTING = (SQL["forget_hours"], SQL["forget_durations"], SQL["forget_minutes"], SQL["forget_waits"])


@dataclass(frozen=True, slots=True)
class Failure:
    kickoff: UUID
    at: datetime
    state: State
    reason: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class CrewStatistics:
    """The kickoffs of a deployment that ended in the last 24 hours.

    `ended` and `failed` have a number for each hour, the oldest one first. `hour` is the start of the last one.
    A kickoff that timed out counts as failed, a cancelled one only as ended. `last_ended_at` and `last_failure` may be
    older.
    """

    hour: datetime
    ended: tuple[int, ...]
    failed: tuple[int, ...]
    succeeded: int
    last_ended_at: datetime | None
    last_failure: Failure | None

    @property
    def total(self) -> int:
        return sum(self.ended)

    @property
    def success_rate(self) -> float | None:
        """The part of those that succeeded or failed, from 0 to 1. None when there are none."""
        judged = self.succeeded + sum(self.failed)
        return self.succeeded / judged if judged else None


@dataclass(frozen=True, slots=True)
class Durations:
    """Percentiles of `count` durations, in seconds, each within 5 %. None when there are none."""

    count: int = 0
    p50: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """What happened on the whole server in the minute or hour that begins `at`.

    `started` counts first starts. `waits` are the times from the acceptance of a kickoff, or from the time when it was
    due, to its first start.
    """

    at: datetime
    accepted: int = 0
    started: int = 0
    ended: int = 0
    failed: int = 0
    waits: Durations = Durations()


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """The last 60 minutes and the last 24 hours, each with the oldest one first and the current one last.

    Moves since `counted_until` are contained, unless it is older than MOST_UNCOUNTED.
    """

    counted_until: datetime
    minutes: tuple[Interval, ...]
    hours: tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class DatabaseLoad:
    """`size` is in bytes. `connections` are those of all clients of PostgreSQL, which accepts `most_connections`."""

    size: int
    connections: int
    most_connections: int


NO_SCANS = (
    "SELECT set_config(name, 'off', true) "
    "FROM unnest(ARRAY['enable_seqscan', 'enable_bitmapscan', 'enable_sort', 'jit']) AS name"
)
"""For the statements that read a short time of kickoffs. With old statistics of the planner, it could expect that most
kickoffs are of this time, and read all of them. JIT would compile the plans that have no alternative: they count as
very expensive.
"""


class StatisticsStore(Store):
    async def count(self) -> None:
        """Counts the moves since the last count, and removes numbers that are older than KEEP.

        Does nothing while another server counts.
        """
        while await self._count_part():
            pass
        for statement in FORGETTING:
            await self._database.execute(statement, {"keep": KEEP})

    async def crews(self, deployments: Sequence[UUID]) -> dict[UUID, CrewStatistics]:
        """Returns the statistics of each of these deployments."""
        values = {"deployments": list(deployments), "most": MOST_UNCOUNTED, "most_error": MOST_ERROR}
        rows = await self._read(CREWS, values)
        return {row["deployment"]: _crew(row) for row in rows}

    async def durations(self, deployment: UUID) -> Durations:
        """Returns the durations of the runs of the last 24 hours. Cancelled kickoffs are left out."""
        values = {"deployment": deployment, "most": MOST_UNCOUNTED}
        rows = await self._read(DURATIONS, values)
        return percentiles([(row["bucket"], row["count"]) for row in rows])

    async def server(self) -> ServerStatistics:
        """Returns the statistics of all deployments together."""
        (state,) = await self._database.rows(SQL["state"], soon=True)
        rows = await self._read(SERVER, {"most": MOST_UNCOUNTED, "apart": CLOCKS_APART})
        minute = state["now"].replace(second=0, microsecond=0)
        return ServerStatistics(
            state["counted_until"],
            tuple(_intervals(rows, "minute", [minute - timedelta(minutes=ago) for ago in reversed(range(MINUTES))])),
            tuple(_intervals(rows, "hour", hours_until(state["now"]))),
        )

    async def database(self) -> DatabaseLoad:
        (row,) = await self._database.rows(SQL["database"], soon=True)
        return DatabaseLoad(**row)

    async def _read(self, query: sql.SQL, values: Mapping[str, Any]) -> list[Row]:
        async with self._database.connection(soon=True) as connection, connection.transaction():
            await connection.execute(NO_SCANS)
            return await fetch(connection, query, values)

    async def _count_part(self) -> bool:
        """Returns whether more is to be counted."""
        async with self._database.transaction() as connection:
            await connection.execute(NO_SCANS)
            window = await fetch(connection, SQL["lock_progress"], {"keep": KEEP, "lag": LAG, "part": PART})
            if not window or window[0]["until"] <= window[0]["since"]:
                return False
            since, until = window[0]["since"], window[0]["until"]
            ids = {"first": first_id(since, -CLOCKS_APART), "last": first_id(until, CLOCKS_APART)}
            await connection.execute(COUNT, {"since": since, "until": until, **ids})
            await connection.execute(SQL["set_progress"], {"until": until})
            return bool(until - since >= PART)


def percentiles(buckets: Sequence[tuple[int, int]]) -> Durations:
    """Returns the percentiles of buckets and their counts, in the order of the buckets."""
    count = sum(number for _, number in buckets)
    return (
        Durations(count, _percentile(buckets, count, 0.5), _percentile(buckets, count, 0.95)) if count else Durations()
    )


def hours_until(now: datetime) -> list[datetime]:
    """Returns the starts of the last 24 hours of UTC."""
    hour = now.replace(minute=0, second=0, microsecond=0)
    return [hour - timedelta(hours=ago) for ago in reversed(range(HOURS))]


def _percentile(buckets: Sequence[tuple[int, int]], count: int, part: float) -> float:
    seen = accumulate(number for _, number in buckets)
    bucket = next(bucket for (bucket, _), until in zip(buckets, seen, strict=True) if until >= math.ceil(part * count))
    return float(STEP ** (bucket + 0.5)) / 1000


def _intervals(rows: Iterable[Row], span: Literal["minute", "hour"], starts: Sequence[datetime]) -> Iterable[Interval]:
    waits: dict[datetime, list[tuple[int, int]]] = defaultdict(list)
    counts: dict[datetime, Row] = {}
    for row in rows:
        if row["span"] == span and row["bucket"] is None:
            counts[row["at"]] = row
        elif row["span"] == span:
            waits[row["at"]].append((row["bucket"], row["started"]))
    for at in starts:
        row = counts.get(at, {})
        numbers = {name: row.get(name, 0) for name in ("accepted", "started", "ended", "failed")}
        yield Interval(at, **numbers, waits=percentiles(waits[at]))


def _crew(row: Row) -> CrewStatistics:
    failure = None
    if row["failure"]:
        failure = Failure(row["failure"], row["failed_at"], State(row["failed_as"]), row["reason"], row["error"])
    return CrewStatistics(
        row["hour"],
        _by_hour(row["ago"], row["ended"]),
        _by_hour(row["ago"], row["failed"]),
        row["succeeded"],
        row["last_ended_at"],
        failure,
    )


def _by_hour(ago: Sequence[int], numbers: Sequence[int]) -> tuple[int, ...]:
    found = dict(zip(ago, numbers, strict=True))
    return tuple(found.get(hours, 0) for hours in reversed(range(HOURS)))


def _moves(window: sql.SQL, ids: sql.SQL) -> sql.SQL:
    """Returns `moves` for a window, which is a condition on {column}, and for the ids of the kickoffs in it."""
    accepted = sql.SQL(" AND ").join([ids, _in(window, "created_at")])
    parts = {"ended": _in(window, "finished_at"), "accepted": accepted, "started": _in(window, "started_at")}
    return filled(SQL["moves"], **parts)


def _in(window: sql.SQL, column: str) -> sql.SQL:
    return filled(window, column=sql.Identifier(column))


WINDOW, IDS = sql.SQL("{column} >= %(since)s AND {column} < %(until)s"), sql.SQL("id >= %(first)s AND id < %(last)s")
UNCOUNTED_ENDS = _in(SQL["uncounted"], "finished_at")
COUNT = filled(SQL["count"], moves=_moves(WINDOW, IDS))
SERVER = filled(SQL["server"], moves=_moves(SQL["uncounted"], SQL["uncounted_ids"]))
CREWS = filled(SQL["crews"], ended=UNCOUNTED_ENDS)
DURATIONS = filled(SQL["durations"], ended=UNCOUNTED_ENDS)

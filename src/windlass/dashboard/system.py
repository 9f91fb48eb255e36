"""The System page: workers, queues, throughput, latency, the database and retention."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from windlass.dashboard.charts import Line, line, top_of
from windlass.dashboard.routes import Routes
from windlass.kickoffs.ids import parse_id
from windlass.rights import Role
from windlass.store.statistics import MOST_UNCOUNTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from windlass.dashboard.routes import Visit
    from windlass.store.overview import QueueRow, WorkerRow
    from windlass.store.statistics import Interval

ROUTES = Routes()
WORKERS, QUEUES = 50, 20
"""The rows that the page shows."""


@dataclass(frozen=True, slots=True)
class Count:
    """A chart of a number of kickoffs, up to the last interval that is over. `newest` is the number of that one.

    `most` is the largest number. `total` also has the current interval.
    """

    title: str
    newest: int
    total: int
    most: int
    line: Line


@dataclass(frozen=True, slots=True)
class Latency:
    """A chart of the percentiles of waits. `newest` is the last interval in which a kickoff started.

    `is_old` is whether it is older than the last interval that is over.
    """

    newest: Interval | None
    is_old: bool
    most: float
    p50: Line
    p95: Line


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues in which kickoffs wait, the longest wait first, and the sums over all queues.

    `waiting` and `oldest` are of kickoffs that wait for a slot or for their turn, `paused` counts those of paused
    crews.
    """

    shown: Sequence[QueueRow]
    more: int
    waiting: int
    paused: int
    delayed: int
    running: int
    oldest: float


@ROUTES.get("/system", Role.VIEWER)
async def show(visit: Visit) -> Response:
    control = visit.dashboard.control
    span = "day" if visit.query.get("span") == "day" else "hour"
    statistics, queues, workers, totals, database = await asyncio.gather(
        control.statistics.server(),
        control.overview.queues(sees=visit.actor.sees),
        control.overview.workers(after=parse_id(visit.query.get("after", "")), limit=WORKERS),
        control.overview.worker_totals(),
        control.statistics.database(),
    )
    intervals = statistics.hours if span == "day" else statistics.minutes
    is_late = datetime.now(UTC) - statistics.counted_until > MOST_UNCOUNTED
    return visit.page(
        "system.html",
        span=span,
        since=intervals[0].at,
        counts=counts_of(intervals),
        latency=latency_of(intervals),
        queues=queues_of(queues),
        workers=workers,
        following=workers[-1].id if len(workers) == WORKERS else None,
        totals=totals,
        usage=usage_of(workers),
        database=database,
        retention=control.management.retention.to_json(),
        counted_until=statistics.counted_until if is_late else None,
    )


def counts_of(intervals: Sequence[Interval]) -> list[Count]:
    """Returns the charts. They leave out the current interval, whose number is still low."""
    series = {
        "Accepted": [one.accepted for one in intervals],
        "Started": [one.started for one in intervals],
        "Ended": [one.ended for one in intervals],
    }
    return [
        Count(title, over[-1], sum(values), max(over), line(over, top_of(over)))
        for title, values in series.items()
        for over in [values[:-1]]
    ]


def latency_of(intervals: Sequence[Interval]) -> Latency:
    p50, p95 = [one.waits.p50 for one in intervals], [one.waits.p95 for one in intervals]
    newest = next((one for one in reversed(intervals) if one.waits.count), None)
    top = top_of(p50, p95)
    is_old = newest is not None and newest not in intervals[-2:]
    return Latency(newest, is_old, top, line(p50, top), line(p95, top))


def queues_of(rows: Sequence[QueueRow]) -> Queues:
    filled = sorted((row for row in rows if row.waiting or row.delayed), key=lambda row: (-row.oldest, row.slug))
    return Queues(
        filled[:QUEUES],
        max(0, len(filled) - QUEUES),
        sum(row.waiting for row in rows if not row.paused),
        sum(row.waiting for row in rows if row.paused),
        sum(row.delayed for row in rows),
        sum(row.running for row in rows),
        max((row.oldest for row in rows if not row.paused), default=0.0),
    )


def usage_of(workers: Sequence[WorkerRow]) -> dict[str, int]:
    """Returns what the living workers report together."""
    alive = [worker for worker in workers if worker.alive]
    return {
        "running": sum(worker.running for worker in alive),
        "zygotes": sum(worker.zygotes for worker in alive),
        "zygote_memory": sum(worker.zygote_memory for worker in alive),
    }

"""Whether a million ended kickoffs and a thousand deployments slow down the statements of requests and workers."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from psycopg.sql import SQL

from bench.backlogs import MANIFEST, SLOTS, kickoff_of, queue
from bench.figures import Figure, quantile
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.outcome import Outcome, TokenUsage
from windlass.kickoffs.states import State
from windlass.store.kickoff_list import KickoffFilter
from windlass.store.overview import DeploymentFilter, OverviewStore
from windlass.store.retention import TABLES, RetentionStore
from windlass.store.statistics import StatisticsStore

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from bench.backlogs import Queue
    from bench.stage import Stage

BATCH = 50_000
WRITERS = 2
SIZE = "SELECT pg_database_size(current_database()) AS bytes"
PAGE = 100
CREWS_OF_A_PAGE = 50
LEASE = 60.0

# Ids in the order of acceptance, over the last 90 days, as a server that has run for so long has them.
ENDED = SQL(
    """
WITH crews AS (
    SELECT id, current_version, row_number() OVER (ORDER BY slug) AS place, count(*) OVER () AS many FROM deployments
), old AS (
    SELECT number, now() - (90.0 * (%(total)s - number) / %(total)s) * interval '1 day' - interval '20 s' AS at
      FROM generate_series(%(first)s::int, %(first)s::int + %(count)s::int - 1) AS number
), kept AS (
    INSERT INTO kickoffs (id, deployment_id, version_id, state, attempt, inputs, output, created_at, started_at,
                          finished_at)
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7'
            || substr(md5(number::text), 1, 19))::uuid,
           crews.id, current_version, 'SUCCESS', 1, '{"topic": "tides"}', '"done"', at, at, at + interval '20 s'
      FROM old
      JOIN crews ON place = number %% many + 1
    RETURNING id, created_at
), tasks AS (
    INSERT INTO task_records (kickoff_id, position, task_id, key, state, attempt, output)
    SELECT id, 0, 'one', '1', 'completed', 1, '"done"' FROM kept
)
INSERT INTO attempts (kickoff_id, attempt, worker_id, host, started_at, ended_at, ended_as)
SELECT id, 1, %(worker)s, 'bench', created_at, created_at + interval '20 s', 'SUCCESS' FROM kept
"""
)


def scale(stage: Stage, *, kickoffs: int, deployments: int, rounds: int) -> list[Figure]:
    return asyncio.run(_scale(stage.environment["BENCH_DATABASE"], kickoffs, deployments, rounds))


async def _scale(url: str, kickoffs: int, deployments: int, rounds: int) -> list[Figure]:
    async with AsyncExitStack() as stack:
        small, large = [await queue(url, name, stack) for name in ("scale_small", "scale_large")]
        await fill(small, 2 * PAGE, 2)  # so that its lists are full pages, too
        begun = time.perf_counter()
        vacuumed = await fill(large, kickoffs, deployments)
        filled = time.perf_counter() - begun - vacuumed
        few: dict[str, list[float]] = defaultdict(list)
        many: dict[str, list[float]] = defaultdict(list)
        for _ in range(rounds):
            for place, times in ((small, few), (large, many)):
                for what, took in await one_round(place):
                    times[what].append(1000 * took)
        (size,) = await large.database.rows(SIZE)
        head = [
            Figure(f"with {kickoffs:,} ended kickoffs of {deployments:,} deployments", ""),
            Figure("  size of the database, GB", f"{size['bytes'] / 1e9:.1f}"),
            Figure("  rows are written, s", f"{filled:.0f}"),
            Figure("  VACUUM ANALYZE, s", f"{vacuumed:.0f}"),
        ]
        return [*head, *compared(few, many), *await pages(large, rounds), *await removal(large, rounds)]


async def removal(place: Queue, rounds: int) -> list[Figure]:
    """The steps of retention, each of which is one transaction."""
    store = RetentionStore(place.database)
    times = []
    removed = 0
    for _ in range(rounds):
        ended = await store.ended(place.other.id, 1.0)
        begun = time.perf_counter()
        for table in TABLES:
            await store.drop_rows(table, ended.kickoffs)
        removed += await store.drop_kickoffs(ended.kickoffs)
        times.append(1000 * (time.perf_counter() - begun))
    vacuumed = 0.0
    async with place.database.connection(patient=True) as connection:
        vacuumed = await seconds(connection.execute("VACUUM kickoffs, task_records, attempts"))
    return [
        Figure(
            f"  retention removes {removed:,} kickoffs, a step, p50 (p95) ms",
            f"{statistics.median(times):.1f} ({quantile(times, 0.95):.1f})",
        ),
        Figure("  VACUUM afterwards, s", f"{vacuumed:.1f}"),
    ]


async def pages(place: Queue, rounds: int) -> list[Figure]:
    """The statements of the dashboard's pages Crews and System, and the count of a day for them."""
    overview, statistics_store = OverviewStore(place.database), StatisticsStore(place.database)
    await place.database.execute("UPDATE statistics_progress SET counted_until = now() - interval '1 day'")
    counted = await seconds(statistics_store.count())

    async def crews() -> None:
        rows = await overview.deployments(DeploymentFilter(), limit=CREWS_OF_A_PAGE)
        await overview.states()
        await statistics_store.crews([row.id for row in rows])

    async def system() -> None:
        await statistics_store.server()
        await statistics_store.database()
        await overview.queues()
        await overview.workers(limit=CREWS_OF_A_PAGE)

    figures = [Figure("  count of a day of kickoffs, ms", f"{1000 * counted:.0f}")]
    for name, read in {"crews": crews, "system": system}.items():
        times = [1000 * await seconds(read()) for _ in range(rounds)]
        middle, late = statistics.median(times), quantile(times, 0.95)
        figures.append(Figure(f"  reads of the page {name}, p50 (p95) ms", f"{middle:.2f} ({late:.2f})", "p95 < 100"))
    return figures


def compared(few: dict[str, list[float]], many: dict[str, list[float]]) -> list[Figure]:
    figures = []
    for what, times in many.items():
        middle, late = statistics.median(times), quantile(times, 0.95)
        ratio = middle / statistics.median(few[what])
        is_list = what == "list"
        figures.append(Figure(f"  {what}, p50 (p95) ms", f"{middle:.2f} ({late:.2f})", "p95 < 100" if is_list else ""))
        figures.append(Figure(f"  ratio to {2 * PAGE} kickoffs", f"{ratio:.2f}", "at most 1.3"))
    return figures


async def fill(place: Queue, kickoffs: int, deployments: int) -> float:
    """Returns the seconds of the vacuum at the end."""
    for number in range(deployments - 2):  # `queue` has made two
        await place.deployments.register(
            f"crew-{number:05}", digest="0", source={"kind": "function"}, manifest=MANIFEST
        )
    writers = asyncio.Semaphore(WRITERS)

    async def write(first: int) -> None:
        values = {"first": first, "count": min(BATCH, kickoffs + 1 - first), "total": kickoffs, "worker": new_id()}
        async with writers, place.database.transaction(patient=True) as connection:
            await connection.execute("SET LOCAL synchronous_commit = off")
            await connection.execute(ENDED, values)

    await asyncio.gather(*(write(first) for first in range(1, kickoffs + 1, BATCH)))
    async with place.database.connection(patient=True) as connection:
        return await seconds(connection.execute("VACUUM ANALYZE"))


async def one_round(place: Queue) -> list[tuple[str, float]]:
    """Returns the seconds of each statement for one new kickoff, and of two lists."""
    new = kickoff_of(place.served)
    wanted = KickoffFilter(deployment=place.served.id)
    found = [
        ("accept", await seconds(place.store.accept([new]))),
        ("status", await seconds(place.store.statuses([new.id]))),
        ("claim", await seconds(place.store.claim(new_id(), SLOTS, LEASE))),
    ]
    await place.store.settle(new.id, 1, Outcome(State.SUCCESS, "done"), TokenUsage(), [])
    return [*found, ("list", await seconds(place.store.listed(wanted, limit=PAGE)))]


async def seconds(work: Awaitable[Any]) -> float:
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun

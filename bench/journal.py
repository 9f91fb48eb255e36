"""What it costs that a finished task is committed before the next one starts."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING

import uvloop
from psycopg.sql import SQL

from bench.fairness import ended
from bench.figures import Figure, quantile
from bench.served import PROJECTS
from bench.workplace import workplace

if TYPE_CHECKING:
    from bench.stage import Stage

ENDS = SQL(
    "SELECT (inputs ->> 'journaled')::bool AS journaled, output #>> '{}' AS output "
    "FROM kickoffs WHERE deployment_id = %(crew)s AND state = 'SUCCESS' ORDER BY id OFFSET %(warm_up)s"
)
WARM_UP = 20
"""Kickoffs: by then the connections have seen the statements."""


def journal(stage: Stage, *, rounds: int) -> list[Figure]:
    return uvloop.run(_journal(stage, rounds))  # as servers do


async def _journal(stage: Stage, rounds: int) -> list[Figure]:
    async with workplace(stage.environment["BENCH_DATABASE"], stage.folder) as place:
        crew = await place.crew(PROJECTS / "many_tasks", "many-tasks")
        async with place.working(slots=1):
            await place.accept(crew, {"journaled": True}, WARM_UP)
            for _ in range(rounds):
                for journaled in (True, False):
                    await place.accept(crew, {"journaled": journaled}, 1)
            await ended(place, crew.id, WARM_UP + 2 * rounds)
        rows = await place.database.rows(ENDS, {"crew": crew.id, "warm_up": WARM_UP})
    tasks = {
        kept: [one for row in rows if row["journaled"] is kept for one in json.loads(row["output"])]
        for kept in (True, False)
    }
    return figures(tasks[True], tasks[False])


def figures(kept: list[float], bare: list[float]) -> list[Figure]:
    added = 1000 * (statistics.median(kept) - statistics.median(bare))
    late = 1000 * (quantile(kept, 0.99) - quantile(bare, 0.99))
    told = f"{added:.2f} ms (p99 {late:.1f} ms)"
    return [Figure(f"the journal, for each of {len(kept)} tasks, p50", told, "2 ms")]

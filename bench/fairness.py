"""Whether a crew with few kickoffs has to wait for one with many."""

from __future__ import annotations

import asyncio
import statistics
from typing import TYPE_CHECKING

from psycopg.sql import SQL

from bench.figures import Figure
from bench.served import PROJECTS
from bench.workplace import Workplace, workplace

if TYPE_CHECKING:
    from uuid import UUID

    from bench.stage import Stage
    from windlass.store.database import Row

SLOTS = 4
UNDER_WAY = 20
"""Kickoffs of the first crew that have ended when those of the second come."""

ENDED = SQL("SELECT count(*) AS ended FROM kickoffs WHERE deployment_id = %(crew)s AND finished_at IS NOT NULL")
RUNS = SQL(
    "SELECT deployment_id AS crew, extract(epoch FROM created_at)::float8 AS accepted, "
    "extract(epoch FROM started_at)::float8 AS started, extract(epoch FROM finished_at)::float8 AS finished "
    "FROM kickoffs WHERE started_at IS NOT NULL ORDER BY started_at, id"
)


def fairness(stage: Stage, *, many: int, few: int) -> list[Figure]:
    return asyncio.run(_fairness(stage, many, few))


async def _fairness(stage: Stage, many: int, few: int) -> list[Figure]:
    async with workplace(stage.environment["BENCH_DATABASE"], stage.folder) as place:
        first, second = [await place.crew(PROJECTS / "short_run", name) for name in ("many", "few")]
        await place.accept(first, {}, many)
        async with place.working(SLOTS):
            await ended(place, first.id, UNDER_WAY)
            await place.accept(second, {}, few)
            await ended(place, second.id, few)
        return figures(await place.database.rows(RUNS, {}), second.id, many, few)


async def ended(place: Workplace, crew: UUID, count: int) -> None:
    async with asyncio.timeout(300):
        while True:
            row = await place.database.row(ENDED, {"crew": crew})
            if row and row["ended"] >= count:
                return
            await asyncio.sleep(0.02)


def figures(runs: list[Row], second: UUID, many: int, few: int) -> list[Figure]:
    theirs = [run for run in runs if run["crew"] == second]
    others = [run for run in runs if run["crew"] != second]
    one_run = statistics.median(run["finished"] - run["started"] for run in runs if run["finished"])
    waited = theirs[0]["started"] - theirs[0]["accepted"]
    between = [run for run in others if theirs[0]["started"] <= run["started"] <= theirs[-1]["started"]]
    return [
        Figure(f"{few} kickoffs behind {many} of another crew, {SLOTS} slots: one run, s", f"{one_run:.2f}"),
        Figure("  wait of the first of them, in runs", f"{waited / one_run:.2f}", "at most 1"),
        Figure(f"  starts of the other crew among their {few}", str(len(between)), f"about {few}"),
    ]

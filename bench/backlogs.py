"""How long a claim takes, whatever else waits that can't be claimed."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

from bench.figures import Figure, quantile
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.manifest import Manifest, TaskDefinition
from windlass.kickoffs.outcome import Outcome, TokenUsage
from windlass.kickoffs.states import State
from windlass.store.accepting import NewKickoff
from windlass.store.database import Database
from windlass.store.deployments import Deployment, DeploymentStore
from windlass.store.kickoffs import KickoffStore
from windlass.store.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.stage import Stage

SHAPES: dict[str, Callable[[], dict[str, Any]] | None] = {
    "nothing else": None,
    "in a paused deployment": dict,
    "whose time is to come": lambda: {"run_at": datetime.now(UTC) + timedelta(days=1)},
    "behind one concurrency key": lambda: {"concurrency_key": "same"},
}
FLOOR = "nothing else"
BATCH = 1000
SLOTS = 4
LEASE = 60.0
MANIFEST = Manifest("function", "bench", {}, (TaskDefinition("one", "1", "one", None),))


def claims(stage: Stage, *, waiting: int, count: int) -> list[Figure]:
    return asyncio.run(_claims(stage.environment["BENCH_DATABASE"], waiting, count))


async def _claims(url: str, waiting: int, count: int) -> list[Figure]:
    async with AsyncExitStack() as stack:
        queues = {shape: await queue(url, f"claims_{number}", stack) for number, shape in enumerate(SHAPES)}
        for shape, fields in SHAPES.items():
            if fields is not None:
                await queues[shape].fill(waiting, fields(), paused="paused" in shape)
        times: dict[str, list[float]] = {shape: [] for shape in SHAPES}
        for _ in range(count):
            for shape, found in queues.items():
                times[shape].append(1000 * await found.claim_one())
    return compared(times, waiting)


def compared(times: dict[str, list[float]], waiting: int) -> list[Figure]:
    floor = statistics.median(times[FLOOR])
    figures = [Figure("claim of one kickoff, nothing else waits, p50 ms", f"{floor:.2f}")]
    for shape, took in times.items():
        if shape != FLOOR:
            middle, late = statistics.median(took), quantile(took, 0.99)
            figures.append(Figure(f"  {waiting:,} more {shape}, p50 (p99) ms", f"{middle:.2f} ({late:.2f})"))
            figures.append(Figure("  ratio to none", f"{middle / floor:.2f}", "at most 2"))
    return figures


@dataclass(frozen=True, slots=True)
class Queue:
    """A database of its own with two deployments: one whose kickoffs are claimed, one with a backlog."""

    database: Database
    store: KickoffStore
    deployments: DeploymentStore
    served: Deployment
    other: Deployment

    async def fill(self, count: int, fields: dict[str, Any], *, paused: bool) -> None:
        """By the statement that accepts kickoffs."""
        if "concurrency_key" in fields:
            await self.store.accept([replace(kickoff_of(self.other), **fields)])
            await self.store.claim(new_id(), 1, 3600.0)  # it has the key from now on
        if paused:
            await self.deployments.pause(self.other.slug)
        for _ in range(count // BATCH):
            batch = [replace(kickoff_of(self.other), **fields) for _ in range(BATCH)]
            accepted = await self.store.accept(batch)
            assert len(accepted.ids) == BATCH

    async def claim_one(self) -> float:
        """Seconds of the claim alone."""
        new = kickoff_of(self.served)
        await self.store.accept([new])
        begun = time.perf_counter()
        claimed = await self.store.claim(new_id(), SLOTS, LEASE)
        took = time.perf_counter() - begun
        if [one.id for one in claimed] != [new.id]:
            raise RuntimeError(f"other kickoffs were claimed: {claimed}")
        await self.store.settle(new.id, 1, Outcome(State.SUCCESS, "done"), TokenUsage(), [])
        return took


async def queue(url: str, name: str, stack: AsyncExitStack) -> Queue:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    parts = urlsplit(url)
    database = await stack.enter_async_context(Database(urlunsplit(parts._replace(path=f"/{name}"))))
    await migrate(database)
    deployments = DeploymentStore(database)
    served, other = [
        await deployments.register(slug, digest="0", source={"kind": "function"}, manifest=MANIFEST)
        for slug in ("served", "other")
    ]
    return Queue(database, KickoffStore(database, max_waiting=10_000_000), deployments, served, other)


def kickoff_of(deployment: Deployment) -> NewKickoff:
    assert deployment.version is not None
    return NewKickoff(new_id(), deployment.id, deployment.version.id, None, json.dumps({"topic": "tides"}))

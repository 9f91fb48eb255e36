"""How long a claim takes, whatever else waits that can't be claimed, and what many questions to people cost."""

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
from windlass.store.kickoff_list import KickoffFilter
from windlass.store.kickoffs import KickoffStore
from windlass.store.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.stage import Stage

    Pages = dict[str, list[float]]

ASKING = "that wait for a person"
SHAPES: dict[str, Callable[[], dict[str, Any]] | None] = {
    "nothing else": None,
    "in a paused deployment": dict,
    "whose time is to come": lambda: {"run_at": datetime.now(UTC) + timedelta(days=1)},
    "behind one concurrency key": lambda: {"concurrency_key": "same"},
    ASKING: dict,
}
FLOOR = "nothing else"
BATCH = 1000
PAGE = 50
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
        await queues[ASKING].ask()
        await queues[FLOOR].fill(waiting, {}, paused=True)
        await queues[FLOOR].cancel()
        times: dict[str, list[float]] = {shape: [] for shape in SHAPES}
        for _ in range(count):
            for shape, found in queues.items():
                times[shape].append(1000 * await found.claim_one())
        pages = [await queues[shape].pages(count) for shape in (FLOOR, ASKING)]
    return [*compared(times, waiting), *asked(pages[0], pages[1], waiting)]


def compared(times: dict[str, list[float]], waiting: int) -> list[Figure]:
    floor = statistics.median(times[FLOOR])
    figures = [Figure("claim of one kickoff, nothing else waits, p50 ms", f"{floor:.2f}")]
    for shape, took in times.items():
        if shape != FLOOR:
            middle, late = statistics.median(took), quantile(took, 0.99)
            figures.append(Figure(f"  {waiting:,} more {shape}, p50 (p99) ms", f"{middle:.2f} ({late:.2f})"))
            figures.append(Figure("  ratio to none", f"{middle / floor:.2f}", "at most 2"))
    return figures


def asked(none: Pages, many: Pages, waiting: int) -> list[Figure]:
    figures = []
    for name, took in none.items():
        before, after = statistics.median(took), statistics.median(many[name])
        figures.append(Figure(f"{name}, {waiting:,} kickoffs have ended, p50 ms", f"{1000 * before:.2f}"))
        figures.append(Figure("  they wait for a person, p50 ms", f"{1000 * after:.2f}"))
        figures.append(Figure("  ratio", f"{after / before:.2f}", "at most 1.3"))
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
        for first in range(0, count, BATCH):
            batch = [replace(kickoff_of(self.other), **fields) for _ in range(min(BATCH, count - first))]
            accepted = await self.store.accept(batch)
            assert len(accepted.ids) == len(batch)

    async def cancel(self) -> None:
        """The kickoffs of the backlog have ended."""
        await self.database.execute(
            "UPDATE kickoffs SET state = 'CANCELLED', reason = 'cancelled', finished_at = now()"
            " WHERE deployment_id = %(of)s",
            {"of": self.other.id},
        )
        await self._change_done()

    async def ask(self) -> None:
        """The kickoffs of the backlog ask a person each, without a process."""
        values = {"of": self.other.id}
        await self.database.execute(
            "UPDATE kickoffs SET state = 'PENDING_HUMAN_INPUT', ready = false, attempt = 1, asked = true,"
            "       paused_at = now() WHERE deployment_id = %(of)s",
            values,
        )
        await self.database.execute(
            "INSERT INTO questions (id, kickoff_id, deployment_id, number, key, attempt, question, draft, waits)"
            " SELECT id, id, deployment_id, 1, 'question', 1, 'Is it good?', '\"A draft\"', false"
            "   FROM kickoffs WHERE deployment_id = %(of)s",
            values,
        )
        await self._change_done()

    async def _change_done(self) -> None:
        await self.database.execute("VACUUM kickoffs")  # the versions of rows before the change are read with the list
        await self.deployments.resume(self.other.slug)

    async def pages(self, count: int) -> Pages:
        """Seconds of what people look at."""
        newest = (await self.store.listed(KickoffFilter(deployment=self.served.id), limit=1)).rows[0].id
        asks: dict[str, Callable[[], Awaitable[object]]] = {
            "status": lambda: self.store.statuses([newest]),
            "page of executions": lambda: self.store.listed(KickoffFilter(), limit=PAGE),
        }
        times: Pages = {name: [] for name in asks}
        for _ in range(count):
            for name, ask in asks.items():
                begun = time.perf_counter()
                await ask()
                times[name].append(time.perf_counter() - begun)
        return times

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

"""Workers, clients and reapers at the same time, as fast as they can, on the same kickoffs; then the audit is asked."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from store.audit import Audit
from store.kickoff_rows import DONE, FAILED, Rows
from windlass.kickoffs.events import stored_event
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.outcome import TokenUsage
from windlass.store.database import Database
from windlass.store.ending import Interruption
from windlass.store.reporting import Batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from windlass.store.claiming import Claimed

    Deed = Callable[["Storm"], Awaitable[object]]

KICKOFFS = 10
"""Of each key, at first."""
CAP = 3
TURNS = 60
LEASE = 0.1
"""Seconds: shorter than some turns take, so that leases end while their runs are written and settled."""
NEVER = 1000
"""Losses after which a kickoff fails."""

OVERLAPPING_KEYS = """
SELECT first.kickoff_id
  FROM runs AS first
  JOIN runs AS second USING (deployment_id, concurrency_key)
 WHERE first.kickoff_id <> second.kickoff_id AND first.since < second.since AND first.until > second.since
"""
RUNS = """
CREATE VIEW runs AS
SELECT audit.kickoff_id, audit.attempt, deployment_id, concurrency_key, min(seq) AS since,
       (SELECT min(seq) FROM audit AS later
         WHERE later.kickoff_id = audit.kickoff_id AND source = 'kickoffs' AND before = 'STARTED' AND after <> 'STARTED'
           AND later.seq > min(audit.seq)) AS until
  FROM audit
  JOIN kickoffs ON kickoffs.id = audit.kickoff_id
 WHERE source = 'kickoffs' AND after = 'STARTED'
 GROUP BY audit.kickoff_id, audit.attempt, deployment_id, concurrency_key
"""
MOST_AT_ONCE = """
SELECT max(at_once) AS most
  FROM (SELECT count(*) AS at_once
          FROM runs
          JOIN runs AS other ON other.since <= runs.since AND other.until > runs.since
         GROUP BY runs.kickoff_id, runs.attempt) AS counted
"""


class Storm:
    """One of many who move kickoffs, each with a chance of its own: a worker, its clients, and the clock."""

    def __init__(self, rows: Rows, seed: int) -> None:
        self.rows = rows
        self.worker = new_id()
        self.chance = random.Random(seed)
        self.runs: list[Claimed] = []

    async def rage(self) -> None:
        for _ in range(TURNS):
            await self.chance.choice(DEEDS)(self)

    @property
    def run(self) -> Claimed | None:
        return self.chance.choice(self.runs) if self.runs else None

    async def accept(self) -> None:
        key = self.chance.choice([None, "a", "b"])
        strategy = self.chance.choice([*["enqueue"] * 18, "reject", "cancel_running"])
        await self.rows.store.accept([self.rows.new(concurrency_key=key, concurrency_strategy=strategy)])

    async def claim(self) -> None:
        self.runs += await self.rows.store.claim(self.worker, self.chance.randint(1, 4), LEASE)

    async def write(self) -> None:
        if run := self.run:
            seq = (await self.rows.store.stored_so_far(run.id)).last_event + 1
            batch = Batch(events=[stored_event(seq, "kind", 1.0, {})])
            await self.rows.store.write_reports(run.id, run.attempt, batch)

    async def renew(self) -> None:
        await self.rows.store.renew(self.worker, [run.id for run in self.runs], LEASE)

    async def settle(self) -> None:
        if run := self.run:
            outcome = self.chance.choice([DONE, FAILED])
            await self.rows.store.settle(run.id, run.attempt, outcome, TokenUsage(), [])

    async def requeue(self) -> None:
        if run := self.run:
            await self.rows.store.requeue(run.id, run.attempt, Interruption("lost", TokenUsage()), max_losses=NEVER)

    async def retry(self) -> None:
        if run := self.run:
            await self.rows.store.retry(run.id, run.attempt, Interruption("again", TokenUsage()), pause=0)

    async def stop(self) -> None:
        if run := self.run:
            await self.rows.store.stop(run.id)

    async def release(self) -> None:
        await self.rows.store.release(self.worker)

    async def reap(self) -> None:
        await self.rows.store.reap(max_losses=NEVER)

    async def come_due(self) -> None:
        await self.rows.come_due()


DEEDS: list[Deed] = [
    *[Storm.accept] * 3,
    *[Storm.claim] * 4,
    *[Storm.write] * 4,
    *[Storm.settle] * 2,
    Storm.renew,
    Storm.requeue,
    Storm.retry,
    Storm.stop,
    Storm.release,
    Storm.reap,
    Storm.come_due,
]


@pytest.fixture
async def rows(database_url: str) -> AsyncIterator[Rows]:
    async with Database(database_url, connections=8) as database:
        yield await Rows.make(database, concurrency=CAP)


async def finish(rows: Rows) -> None:
    """What is open still is run to its end."""
    async with asyncio.timeout(60):
        while await rows.database.rows("SELECT FROM kickoffs WHERE state IN ('PENDING', 'STARTED') LIMIT 1"):
            await rows.end_leases()
            await rows.store.reap(max_losses=NEVER)
            await rows.come_due()
            for run in await rows.store.claim(rows.worker, NEVER, 60.0):
                await rows.store.settle(run.id, run.attempt, DONE, TokenUsage(), [])


@pytest.mark.parametrize("seed", [1, 2])
async def test_whoever_moves_kickoffs_at_the_same_time_no_rule_is_broken(
    rows: Rows, database_url: str, seed: int
) -> None:
    audit = Audit(database_url)
    audit.install()
    for key in (None, "a", "b"):
        await rows.accept(KICKOFFS, concurrency_key=key)
    storms = [Storm(rows, 100 * seed + number) for number in range(6)]
    await asyncio.gather(*(storm.rage() for storm in storms))
    await finish(rows)
    assert audit.without_end() == []
    assert audit.more_than_one_end() == []
    assert audit.wrong_moves() == []
    assert audit.late_rows() == []
    await rows.database.execute(RUNS)
    assert await rows.database.rows(OVERLAPPING_KEYS) == []
    assert await rows.database.rows(MOST_AT_ONCE) == [{"most": CAP}]

"""Kickoffs that ask a person twice, while servers, processes and the database are killed: each ends once.

With WINDLASS_TESTS_QUESTIONS=200 so many kickoffs ask.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from faults import harm
from faults.cluster import FAST, Cluster, with_database
from faults.verdict import verdict
from patience import DEADLINE
from projects_for_tests.places import folder_for_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import psutil

    from faults.cluster import Started

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("faults")]

KICKOFFS = int(os.environ.get("WINDLASS_TESTS_QUESTIONS", "4"))  # noqa: TID251 - a size of this test alone
SECONDS_OF_ONE = 15.0
"""In which a kickoff ends at the latest, on the average, on a machine that is busy with other tests."""
IS_LARGE = KICKOFFS > 20
SETTINGS = {**FAST, "WINDLASS_LEASE": "10" if IS_LARGE else "3", "WINDLASS_SLOTS": "6", "WINDLASS_MAX_LOSSES": "100"}
BETWEEN_FAULTS = (4.0, 12.0) if IS_LARGE else (0.2, 1.5)
"""Seconds. Kickoffs of which ten attempts in a row end before their process has started fail."""
FAULTS = (
    harm.kill_zygote,
    harm.kill_worker,
    harm.kill_api,
    harm.kill_postgres,
    harm.stop_worker,
    harm.cut_briefly,
    harm.restart_in_turn,
)
KIND = "approval"
OPEN = """
SELECT id::text, kickoff_id::text, position FROM questions WHERE answered_at IS NULL AND closed_at IS NULL ORDER BY id
"""
QUESTIONS = """
SELECT kickoff_id::text, count(*) AS asked, count(*) FILTER (WHERE approved) AS approved
  FROM questions
 WHERE answered_at IS NOT NULL
 GROUP BY kickoff_id
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster() -> AsyncIterator[Cluster]:
    with folder_for_all() as place:
        async with Cluster(place, kinds=[KIND], settings=SETTINGS, forked=True) as cluster:
            yield cluster


async def open_questions(cluster: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    async def read() -> bool:
        found[:] = await asyncio.to_thread(cluster.audit.rows, OPEN)
        return True

    await with_database(read)
    return found


async def answer(cluster: Cluster, question: dict[str, Any], chance: random.Random) -> None:
    """At a random moment, with words that let the task run again or with an approval."""
    await asyncio.sleep(chance.uniform(0, max(2, KICKOFFS / 5)))
    approved = chance.random() < 0.7
    body = {
        "execution_id": question["kickoff_id"],
        "task_id": question["id"],
        "is_approve": approved,
        "human_feedback": "" if approved else "Add more details.",
    }
    await cluster._ask("POST", KIND, "resume", body, {"Idempotency-Key": question["id"]})


async def answer_all(cluster: Cluster, chance: random.Random) -> None:
    known: set[str] = set()
    async with asyncio.TaskGroup() as group:
        while True:
            for question in await open_questions(cluster):
                if question["id"] not in known:
                    known.add(question["id"])
                    group.create_task(answer(cluster, question, chance))
            await asyncio.sleep(0.1)


async def harm_at_random(cluster: Cluster, chance: random.Random, over: asyncio.Event) -> None:
    """Ends after a whole fault: each leaves the cluster whole."""
    while not over.is_set():
        await asyncio.sleep(chance.uniform(*BETWEEN_FAULTS))
        fault = chance.choice(FAULTS)
        print(f"{harm.words(fault)}: {await fault(cluster, chance)}")


def processes(cluster: Cluster) -> list[psutil.Process]:
    """The processes of runs."""
    return [child for worker in cluster.workers for zygote in worker.zygotes() for child in zygote.children()]


async def all_wait(cluster: Cluster, started: list[Started]) -> None:
    ids = {one.id for one in started}

    async def each() -> bool:
        return {one["kickoff_id"] for one in await open_questions(cluster)} == ids and not processes(cluster)

    deadline = time.monotonic() + DEADLINE + KICKOFFS
    while not await each():
        assert time.monotonic() < deadline, f"{await open_questions(cluster)} wait, {processes(cluster)} live"
        await asyncio.sleep(0.1)


async def test_kickoffs_that_ask_hold_no_process_and_each_ends_once(cluster: Cluster) -> None:
    chance, over = random.Random(7), asyncio.Event()
    started = [await cluster.kickoff(KIND) for _ in range(KICKOFFS)]
    await all_wait(cluster, started)
    answering = asyncio.create_task(answer_all(cluster, chance))
    harming = asyncio.create_task(harm_at_random(cluster, chance, over))
    try:
        ended = [await cluster.ended(one, DEADLINE + SECONDS_OF_ONE * KICKOFFS) for one in started]
    finally:
        answering.cancel()
        over.set()
        await asyncio.wait([answering, harming])
    harming.result()
    assert [status["state"] for status in ended] == ["SUCCESS"] * KICKOFFS, ended
    assert verdict(cluster).troubles == {}
    rows = await asyncio.to_thread(cluster.audit.rows, QUESTIONS)
    assert {row["kickoff_id"]: row["approved"] for row in rows} == {one.id: 2 for one in started}
    assert await open_questions(cluster) == []

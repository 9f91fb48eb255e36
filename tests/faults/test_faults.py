"""One fault at a time, on two workers and two API servers that share a database: nothing is lost or paid for twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from faults import harm
from faults.cluster import FAST, Cluster
from faults.verdict import verdict
from projects_for_tests.places import folder_for_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from faults.cluster import Started

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("faults")]

CHANCE = random.Random(4)
DISK = 400
SETTINGS = {**FAST, "WINDLASS_LEASE": "3", "WINDLASS_DRAIN_GRACE": "3"}
"""A machine that is busy with other tests must not lose a lease by itself, nor be late for the end of a drain."""
HELD = 2
"""The step of a three-task crew in which a fault meets it."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with folder_for_all() as place:
        yield place


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def the_cluster(place: Path) -> AsyncIterator[Cluster]:
    async with Cluster(place, settings=SETTINGS, disk=DISK, forked=True) as cluster:
        for kind in cluster.kinds:  # what crews are forked from is there before the first fault
            await cluster.ended(await cluster.kickoff(kind))
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(the_cluster: Cluster) -> AsyncIterator[Cluster]:
    """The same for all tests. After each, all witnesses are asked of its kickoffs."""
    the_cluster.accepted.clear()
    yield the_cluster
    assert verdict(the_cluster).troubles == {}


async def held(cluster: Cluster, kind: str = "crew") -> Started:
    """A kickoff whose first task is finished and whose second one waits for the model."""
    started = await cluster.kickoff(kind, hold=HELD)
    await cluster.in_flight(started, HELD)
    return started


async def runs_again(cluster: Cluster, started: Started) -> None:
    """It comes to its end in another attempt, which asks the model again for what was in flight, and for no more."""
    end, attempt = await state(cluster, started)
    assert end == "SUCCESS"
    assert attempt >= 2
    steps = [call.step for call in cluster.witness.calls(started.run)]
    assert all((steps.count(step) > 1) is (step == HELD) for step in set(steps))


async def state(cluster: Cluster, started: Started) -> tuple[str, int]:
    """And how many attempts it took; what became of them stands in the report of a test that fails."""
    status = await cluster.ended(started)
    print("\n".join(cluster.attempts(started)))
    return status["state"], status["attempt"]


async def test_a_child_that_is_killed_fails_its_kickoff_and_no_other(cluster: Cluster) -> None:
    mine, others = await held(cluster), [await held(cluster) for _ in range(2)]
    (call,) = cluster.witness.in_flight(mine.run)
    assert call.pid
    os.kill(call.pid, signal.SIGKILL)
    status = await cluster.ended(mine)
    assert (status["state"], status["reason"]) == ("FAILED", "crashed")
    for other in others:
        cluster.witness.release(other.run)
        assert await state(cluster, other) == ("SUCCESS", 1)


async def test_a_child_that_is_killed_is_followed_by_another_where_its_project_wants_that(cluster: Cluster) -> None:
    flow = await held(cluster, "flow")
    await harm.kill_child(cluster, CHANCE)
    await runs_again(cluster, flow)


async def test_kickoffs_of_a_zygote_that_is_killed_run_again_from_the_task_that_was_in_flight(cluster: Cluster) -> None:
    crews = [await held(cluster) for _ in range(2)]
    for worker in cluster.workers:
        for zygote in worker.zygotes():
            zygote.kill()
    for crew in crews:
        await runs_again(cluster, crew)


@pytest.mark.parametrize("kind", ["crew", "flow"])
async def test_kickoffs_of_a_worker_that_is_killed_go_on_elsewhere(cluster: Cluster, kind: str) -> None:
    started = await held(cluster, kind)
    worker = await cluster.worker_of(started)
    await asyncio.to_thread(worker.kill)
    await runs_again(cluster, started)
    await cluster.start(worker)


async def test_what_two_servers_accept_while_one_is_killed_runs_once(cluster: Cluster) -> None:
    asking = [asyncio.create_task(cluster.kickoff("function")) for _ in range(20)]
    await harm.kill_api(cluster, CHANCE)
    for started in await asyncio.gather(*asking):
        assert await state(cluster, started) == ("SUCCESS", 1)


async def test_a_postgresql_that_is_killed_is_not_missed(cluster: Cluster) -> None:
    crew = await held(cluster)
    await harm.kill_postgres(cluster, CHANCE)
    cluster.witness.release(crew.run)
    accepted = await cluster.kickoff("function")
    assert (await state(cluster, crew))[0] == "SUCCESS"
    assert (await state(cluster, accepted))[0] == "SUCCESS"


async def test_while_postgresql_is_away_for_longer_than_the_lease_the_runs_end_and_run_again(cluster: Cluster) -> None:
    crew = await held(cluster)
    await harm.take_postgres_away(cluster, CHANCE)
    await runs_again(cluster, crew)


async def test_a_worker_that_stood_still_has_lost_its_kickoffs_to_another(cluster: Cluster) -> None:
    crew = await held(cluster)
    worker = await cluster.worker_of(crew)
    with harm.stopped(worker):
        await runs_again(cluster, crew)
    assert (await cluster.ended(await cluster.kickoff("function")))["state"] == "SUCCESS"


async def test_a_worker_that_is_cut_off_for_a_moment_keeps_its_kickoffs(cluster: Cluster) -> None:
    crew = await held(cluster)
    cutting = asyncio.create_task(harm.cut_off(cluster, await cluster.worker_of(crew), harm.BRIEFLY * cluster.lease))
    cluster.witness.release(crew.run)
    assert await state(cluster, crew) == ("SUCCESS", 1)
    await cutting


@pytest.mark.parametrize("fault", [harm.cut_for_long, harm.silence], ids=harm.words)
async def test_a_worker_that_is_cut_off_for_longer_than_the_lease_loses_them(
    cluster: Cluster, fault: harm.Fault
) -> None:
    crews = [await held(cluster) for _ in range(3)]
    workers = {(await cluster.worker_of(crew)).name for crew in crews}
    chance = random.Random(4)
    cut = await fault(cluster, chance)
    for crew in crews:
        cluster.witness.release(crew.run)
    states = [await state(cluster, crew) for crew in crews]
    assert {name for name, _ in states} == {"SUCCESS"}
    assert any(attempt > 1 for _, attempt in states) or cut not in workers


async def test_a_full_disk_loses_nothing(cluster: Cluster) -> None:
    if not cluster.disk_is_ours:
        pytest.skip("mounting a disk of its own for PostgreSQL needs root and a system that lets it")
    crew = await held(cluster)
    asking = asyncio.create_task(cluster.kickoff("function"))
    await harm.fill_disk(cluster, CHANCE)
    cluster.witness.release(crew.run)
    assert (await state(cluster, crew))[0] == "SUCCESS"
    assert (await state(cluster, await asking))[0] == "SUCCESS"


async def test_a_worker_that_is_told_to_stop_lets_a_run_come_to_its_end(cluster: Cluster) -> None:
    crew = await held(cluster)
    worker = await cluster.worker_of(crew)
    stopping = asyncio.create_task(asyncio.to_thread(worker.stop))
    cluster.witness.release(crew.run)
    assert await stopping == 0, worker.log
    assert await state(cluster, crew) == ("SUCCESS", 1)
    await cluster.start(worker)


async def test_a_run_that_takes_longer_goes_on_elsewhere_and_counts_as_no_loss(cluster: Cluster) -> None:
    crew = await held(cluster)
    worker = await cluster.worker_of(crew)
    assert await asyncio.to_thread(worker.stop) == 0, worker.log
    await runs_again(cluster, crew)
    assert "released" in cluster.attempts(crew)[0]
    assert losses(cluster, [crew]) == 0
    await cluster.start(worker)


async def test_an_update_of_all_servers_under_load_fails_nothing(cluster: Cluster) -> None:
    asking = [asyncio.create_task(cluster.kickoff("crew", seconds=0.3)) for _ in range(6)]
    await harm.restart_in_turn(cluster, CHANCE)
    started = [await one for one in asking]
    assert [(await state(cluster, one))[0] for one in started] == ["SUCCESS"] * 6
    assert losses(cluster, started) == 0


def losses(cluster: Cluster, all_started: list[Started]) -> int:
    query = "SELECT sum(losses)::int AS losses FROM kickoffs WHERE id::text = ANY (%(ids)s)"
    (row,) = cluster.audit.rows(query, ids=[started.id for started in all_started])
    return int(row["losses"])

"""A worker that is told to stop, with runs that are not at their end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lifecycle.waiting import until
from projects_for_tests.ends import gone
from windlass.kickoffs.states import State

if TYPE_CHECKING:
    from lifecycle.running import Place, World

LONG = 600.0


async def test_what_runs_may_come_to_its_end_and_nothing_more_is_claimed(world: World, place: Place) -> None:
    worker = await world.worker(slots=2)
    kickoff = await world.accept(**place.inputs())
    await place.until_held()
    draining = asyncio.create_task(worker.drain(LONG, asyncio.Event()))
    await until(lambda: drained_from(world, worker.id))
    late = await world.accept()
    place.let_go()
    await asyncio.wait_for(draining, 60)
    assert (await world.status(kickoff)).state is State.SUCCESS
    assert (await world.status(late)).state is State.PENDING


async def test_leases_are_renewed_meanwhile(world: World, place: Place) -> None:
    worker = await world.worker(lease=1.0, renewal=0.1)
    kickoff = await world.accept(**place.inputs())
    (pid,) = await place.until_held()
    draining = asyncio.create_task(worker.drain(LONG, asyncio.Event()))
    await asyncio.sleep(1.5)  # longer than the lease
    place.let_go()
    await draining
    status = await world.status(kickoff)
    assert (status.state, status.attempt) == (State.SUCCESS, 1)
    assert place.pids() == [pid]


async def test_when_its_time_is_over_what_still_runs_is_given_back_without_a_loss(world: World, place: Place) -> None:
    worker = await world.worker()
    kickoff = await world.accept(**place.inputs())
    (pid,) = await place.until_held()
    await worker.drain(0.2, asyncio.Event())
    await worker.stop()
    await gone(pid)
    assert (await world.status(kickoff)).state is State.PENDING
    assert await world.losses(kickoff) == 0


async def test_in_a_hurry_nothing_is_waited_for(world: World, place: Place) -> None:
    worker = await world.worker()
    await world.accept(**place.inputs())
    await place.until_held()
    stop_now = asyncio.Event()
    draining = asyncio.create_task(worker.drain(LONG, stop_now))
    await asyncio.sleep(0)
    stop_now.set()
    await asyncio.wait_for(draining, 60)


async def test_a_worker_with_nothing_to_do_drains_at_once(world: World) -> None:
    worker = await world.worker()
    await asyncio.wait_for(worker.drain(LONG, asyncio.Event()), 60)


async def drained_from(world: World, worker: object) -> bool:
    """It has told that it has no slots any more."""
    rows = await world.database.rows("SELECT slots FROM workers WHERE id = %(id)s", {"id": worker})
    return [row["slots"] for row in rows] == [0]

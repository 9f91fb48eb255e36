"""A kickoff that is stopped, wherever it is just then."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from lifecycle.waiting import until
from projects_for_tests.ends import gone
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.outcome import STOPPED
from windlass.kickoffs.states import State
from windlass.lifecycle.accept import Stops
from windlass.lifecycle.worker_config import CrewEnvironment
from windlass.store.audit import COMMAND_LINE

if TYPE_CHECKING:
    from uuid import UUID

    from lifecycle.running import Place, World
    from windlass.lifecycle.worker import Worker
    from windlass.store.claiming import Claimed


@pytest.fixture
def stops(world: World) -> Stops:
    return Stops(world.store)


async def is_cancelled(world: World, kickoff: UUID, attempt: int) -> None:
    status = await world.ended(kickoff)
    assert (status.state, status.reason, status.error) == (State.CANCELLED, "cancelled", STOPPED)
    assert status.attempt == attempt


async def test_a_queued_kickoff_never_starts(world: World, stops: Stops, place: Place) -> None:
    await world.worker(slots=1)
    first, second = await world.accept(**place.inputs()), await world.accept(**place.inputs())
    await place.until_held()
    assert await stops.stop(second, COMMAND_LINE) is State.CANCELLED
    place.let_go()
    assert (await world.ended(first)).state is State.SUCCESS
    await is_cancelled(world, second, 0)
    assert len(place.pids()) == 1


async def test_a_running_kickoff_ends(
    world: World, stops: Stops, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass")
    await world.worker(renewal=600.0)  # it hears of it, it does not find out
    kickoff = await world.accept(**place.inputs())
    (pid,) = await place.until_held()
    assert await stops.stop(kickoff, COMMAND_LINE) is State.STARTED
    await is_cancelled(world, kickoff, 1)
    await gone(pid)
    assert "kickoff.stop_requested" in [record.message for record in caplog.records]


async def test_a_stop_that_nobody_heard_is_found_at_the_next_renewal(world: World, stops: Stops, place: Place) -> None:
    await world.worker(renewal=0.1)
    kickoff = await world.accept(**place.inputs())
    await place.until_held()
    await world.listener.stop()
    await stops.stop(kickoff, COMMAND_LINE)

    async def has_ended() -> bool:
        return (await world.status(kickoff)).state.ended

    await until(has_ended)
    await is_cancelled(world, kickoff, 1)


async def test_a_stop_that_comes_while_the_claim_is_under_way_is_remembered(
    world: World, stops: Stops, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = asyncio.Event()
    world.listener.on("windlass_stops", lambda _: heard.set())
    claim = world.store.claim

    async def claim_and_be_slow_to_tell(*given: Any, **named: Any) -> list[Claimed]:
        claimed = await claim(*given, **named)
        for one in claimed:
            await stops.stop(one.id, COMMAND_LINE)
            await heard.wait()
        return claimed

    worker = world.idle_worker(renewal=600.0)
    monkeypatch.setattr(worker._store, "claim", claim_and_be_slow_to_tell)
    kickoff = await world.accept(**place.inputs())
    await worker.start()
    try:
        await is_cancelled(world, kickoff, 1)
    finally:
        await worker.stop()
    assert place.pids() == []


async def test_a_stop_that_comes_while_the_environment_is_asked_for_is_obeyed(
    world: World, stops: Stops, place: Place
) -> None:
    heard = asyncio.Event()
    world.listener.on("windlass_stops", lambda _: heard.set())

    async def environment(claimed: Claimed) -> CrewEnvironment:
        await stops.stop(claimed.id, COMMAND_LINE)
        await heard.wait()
        return CrewEnvironment({})

    await world.worker(environment, renewal=600.0)
    await is_cancelled(world, await world.accept(**place.inputs()), 1)
    assert place.pids() == []


async def test_a_kickoff_of_a_worker_that_died_is_not_run_again(world: World, stops: Stops, place: Place) -> None:
    dying = await world.worker(lease=1.0, renewal=600.0)
    kickoff = await world.accept(**place.inputs())
    await place.until_held()
    await die(dying)
    assert await stops.stop(kickoff, COMMAND_LINE) is State.STARTED
    await world.worker(renewal=0.1)
    await is_cancelled(world, kickoff, 1)
    assert len(place.pids()) == 1


async def test_a_kickoff_that_is_stopped_while_its_worker_drains_is_not_given_back(
    world: World, stops: Stops, place: Place
) -> None:
    worker = await world.worker(renewal=600.0)
    kickoff = await world.accept(**place.inputs())
    await place.until_held()
    await asyncio.gather(stops.stop(kickoff, COMMAND_LINE), worker.stop())
    await is_cancelled(world, kickoff, 1)


async def test_one_that_has_ended_stays_as_it_ended(world: World, stops: Stops) -> None:
    await world.worker()
    kickoff = await world.accept()
    await world.ended(kickoff)
    assert await stops.stop(kickoff, COMMAND_LINE) is State.SUCCESS
    assert (await world.status(kickoff)).state is State.SUCCESS


async def test_of_two_who_stop_at_once_none_does_harm(world: World, stops: Stops, place: Place) -> None:
    await world.worker()
    kickoff, other = await world.accept(**place.inputs()), await world.accept(**place.inputs())
    await place.until_held(2)
    await asyncio.gather(stops.stop(kickoff, COMMAND_LINE), stops.stop(kickoff, COMMAND_LINE))
    await is_cancelled(world, kickoff, 1)
    place.let_go()
    assert (await world.ended(other)).state is State.SUCCESS


async def test_nothing_is_said_of_a_kickoff_that_is_none(stops: Stops, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "windlass")
    assert await stops.stop(new_id(), COMMAND_LINE) is None
    assert caplog.records == []


async def die(worker: Worker) -> None:
    """Without giving anything back."""
    await worker._claiming.stop()
    await worker._upkeep.stop()
    for run in list(worker._runs.values()):
        run.task.cancel()
    await asyncio.gather(*(run.task for run in list(worker._runs.values())), return_exceptions=True)

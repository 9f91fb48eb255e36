"""Runs whose kickoff went on without them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lifecycle.running import take_away
from lifecycle.waiting import until
from projects_for_tests.ends import gone
from windlass.kickoffs.states import State

if TYPE_CHECKING:
    import pytest

    from lifecycle.running import Place, World


async def test_a_run_that_was_taken_away_ends_and_nothing_of_it_is_written(
    world: World, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass")
    await world.worker(slots=1, lease=1.0, renewal=0.1)
    kickoff = await world.accept(**place.inputs())
    (pid,) = await place.until_held()
    await take_away(world)
    await gone(pid)
    status = await world.status(kickoff)
    assert (status.state, status.attempt, status.output) == (State.STARTED, 2, None)
    assert "kickoff.ended" not in [record.message for record in caplog.records]


async def test_a_run_that_talks_finds_out_at_once_that_it_was_taken_away(
    world: World, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass")
    await world.worker(slots=1, lease=600.0, renewal=600.0)
    kickoff = await world.accept(**place.inputs(talk=True))
    (pid,) = await place.until_held()
    await take_away(world)
    await gone(pid)
    await until_logged("kickoff.taken", caplog)
    assert {row["attempt"] for row in await world.events(kickoff)} <= {1}


async def test_an_outcome_that_comes_too_late_counts_for_nothing(
    world: World, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass")
    await world.worker(slots=1, lease=600.0, renewal=600.0)
    kickoff = await world.accept(**place.inputs())
    (pid,) = await place.until_held()
    await take_away(world)
    place.let_go()
    await gone(pid)
    await until_logged("kickoff.taken", caplog)
    assert (await world.status(kickoff)).state is State.STARTED


async def until_logged(event: str, caplog: pytest.LogCaptureFixture) -> None:
    async def is_logged() -> bool:
        return event in [record.message for record in caplog.records]

    await until(is_logged)

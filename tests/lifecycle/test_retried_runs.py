from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from windlass.kickoffs.limits import Limits
from windlass.kickoffs.states import State

if TYPE_CHECKING:
    from lifecycle.running import World


async def with_retries(world: World, **retries: Any) -> None:
    """As if the project had said so at its registration."""
    await world.database.execute(
        "UPDATE versions SET source = (source::jsonb || jsonb_build_object('options', jsonb_build_object('retries', "
        "%(retries)s::jsonb)))::json",
        {"retries": json.dumps(retries)},
    )


async def test_a_crew_that_fails_is_tried_as_often_as_its_project_says(world: World) -> None:
    await with_retries(world, attempts=3, backoff=0.01)
    await world.worker()
    kickoff = await world.accept(do="fail")
    status = await world.ended(kickoff)
    assert (status.state, status.reason, status.attempt) == (State.FAILED, "error", 3)
    assert "it could not be done" in (status.error or "")
    ended = await world.database.rows("SELECT ended_as FROM attempts ORDER BY attempt")
    assert [row["ended_as"] for row in ended] == ["retried", "retried", "FAILED"]
    assert await world.losses(kickoff) == 0


@pytest.mark.parametrize(("reasons", "attempts"), [(["crashed"], 2), (["error"], 1)])
async def test_only_the_reasons_that_are_named_are_tried_again(world: World, reasons: list[str], attempts: int) -> None:
    await with_retries(world, attempts=2, backoff=0.01, reasons=reasons)
    await world.worker()
    kickoff = await world.accept(do="exit")
    assert (await world.ended(kickoff)).attempt == attempts


async def test_no_pause_is_made_that_its_timeout_would_not_outlast(world: World) -> None:
    await with_retries(world, attempts=3, backoff=600)
    await world.worker(limits=Limits(timeout=60))
    status = await world.ended(await world.accept(do="fail"))
    assert (status.reason, status.attempt) == ("error", 1)


async def test_without_a_word_of_the_project_a_failure_is_the_end(world: World) -> None:
    await world.worker()
    assert (await world.ended(await world.accept(do="fail"))).attempt == 1

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from api.runs import begin
from windlass.kickoffs.states import Reason, State

if TYPE_CHECKING:
    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")

STOPPING = "It is being stopped: its processes are gone within 5 seconds."
ENDED_BEFORE = "It had ended before: nothing is left to stop."


async def test_a_waiting_kickoff_has_ended_when_the_answer_comes(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    assert await crew.stop(kickoff) == {
        "kickoff_id": kickoff,
        "status": "error",
        "state": "FAILED",
        "message": "It was waiting and will never start.",
    }
    status = await crew.status(kickoff)
    assert (status["state"], status["reason"], status["started_at"]) == ("FAILED", "cancelled", None)
    assert status["error"]
    assert status["finished_at"] is not None


async def test_a_kickoff_that_waits_again_after_a_loss_will_not_go_on(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.requeue()
    assert (await crew.stop(kickoff))["message"] == "It was waiting and will not go on."
    assert (await crew.status(kickoff))["reason"] == "cancelled"


async def test_the_stop_of_a_running_kickoff_is_recorded_when_the_answer_comes(crew: Crew) -> None:
    await begin(crew, kickoff := await crew.kickoff())
    assert await crew.stop(kickoff) == {
        "kickoff_id": kickoff,
        "status": "running",
        "state": "STARTED",
        "message": STOPPING,
    }
    assert (await crew.row(kickoff))["stop_requested_at"] is not None


async def test_stopping_twice_is_stopping_once(crew: Crew) -> None:
    waiting = await crew.kickoff()
    await crew.stop(waiting)
    ended = await crew.row(waiting)
    assert (await crew.stop(waiting))["message"] == ENDED_BEFORE
    assert await crew.row(waiting) == ended
    await begin(crew, running := await crew.kickoff())
    await crew.stop(running)
    asked = await crew.row(running)
    assert (await crew.stop(running))["message"] == STOPPING
    assert (await crew.row(running))["stop_requested_at"] == asked["stop_requested_at"]


async def test_many_stops_at_the_same_instant_have_one_effect(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    answers = await asyncio.gather(*(crew.stop(kickoff) for _ in range(10)))
    assert {answer["state"] for answer in answers} == {"FAILED"}
    assert (await crew.status(kickoff))["reason"] == "cancelled"


async def test_a_kickoff_that_has_ended_stays_as_it_ended(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.succeed()
    before = await crew.status(kickoff)
    assert await crew.stop(kickoff) == {
        "kickoff_id": kickoff,
        "status": "completed",
        "state": "SUCCESS",
        "message": ENDED_BEFORE,
    }
    assert await crew.status(kickoff) == before


async def test_a_run_that_has_its_result_after_the_answer_to_the_stop_has_been_stopped(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await crew.stop(kickoff)
    await run.succeed()
    status = await crew.status(kickoff)
    assert (status["state"], status["reason"], "result" in status) == ("FAILED", "cancelled", False)


async def test_a_run_that_was_stopped_ends_with_its_reason(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await crew.stop(kickoff)
    await run.end(State.CANCELLED, Reason.CANCELLED)
    status = await crew.status(kickoff)
    assert (status["status"], status["state"], status["reason"]) == ("error", "FAILED", "cancelled")


async def test_who_waits_for_the_end_of_a_waiting_kickoff_hears_of_its_stop_at_once(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    waiting = asyncio.create_task(crew.status(kickoff, params={"wait": "60"}))
    async with asyncio.timeout(40):  # less than it would wait
        await crew.stop(kickoff)
        assert (await waiting)["reason"] == "cancelled"


async def test_a_user_may_stop_what_is_its_own_and_the_organization_whatever_there_is(crew: Crew) -> None:
    own, others = await crew.kickoff(token=crew.user_token), await crew.kickoff(token=crew.user_token)
    assert (await crew.stop(own, token=crew.user_token))["state"] == "FAILED"
    assert (await crew.stop(others))["state"] == "FAILED"


@pytest.mark.parametrize("body", [b"", b"{}", b"no JSON", b"\xff" * 100_000])
async def test_a_body_is_passed_over(crew: Crew, body: bytes) -> None:
    assert (await crew.stop(await crew.kickoff(), content=body))["state"] == "FAILED"


async def test_a_kickoff_is_stopped_by_a_post_alone(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    answer = await crew.get(f"/stop/{kickoff}")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert (await crew.status(kickoff))["state"] == "PENDING"

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import pytest

from api.runs import begin
from api.serving import serving, unknown_id, until
from windlass.kickoffs.states import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from api.serving import Crew, Server

T = TypeVar("T")
pytestmark = pytest.mark.asyncio(loop_scope="session")

PROMPTLY = 40.0
"""Seconds: far more than an answer takes, and less than the 60 s that must not be waited out."""


async def promptly(asked: Awaitable[T]) -> T:
    """The answer, long before the wait that the request allowed is over."""
    return await asyncio.wait_for(asked, PROMPTLY)


async def is_held(server: Server, kickoff: str) -> None:
    """A request waits for this kickoff."""

    async def waiting() -> bool:
        return UUID(kickoff) in server.statuses._ends._waiting

    await until(waiting, "a request is held back")


async def test_the_answer_comes_as_soon_as_the_kickoff_ends(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    held = asyncio.create_task(promptly(crew.status(f"{kickoff}?wait=60")))
    await is_held(crew.server, kickoff)
    await run.succeed("late")
    status = await held
    assert (status["state"], status["result"]["output"]) == ("SUCCESS", "late")


async def test_a_bad_end_wakes_it_too(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    held = asyncio.create_task(promptly(crew.status(f"{kickoff}?wait=60")))
    await is_held(crew.server, kickoff)
    await run.fail(Reason.CRASHED)
    status = await held
    assert (status["state"], status["reason"]) == ("FAILED", "crashed")


async def test_every_request_that_waits_is_woken_on_every_server(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    async with serving(crew.server.database.url) as other:
        held = [asyncio.create_task(promptly(at.status(f"{kickoff}?wait=60"))) for at in (crew, crew, crew.at(other))]
        await is_held(crew.server, kickoff)
        await is_held(other, kickoff)
        await run.succeed()
        assert [status["state"] for status in await asyncio.gather(*held)] == ["SUCCESS"] * 3


async def test_the_path_of_old_clients_waits_too(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    held = asyncio.create_task(crew.get(f"/{kickoff}/status?wait=60"))
    await is_held(crew.server, kickoff)
    await run.succeed()
    assert (await held).json()["state"] == "SUCCESS"


async def test_a_kickoff_that_goes_on_is_told_after_the_wait(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    begun = time.monotonic()
    status = await promptly(crew.status(f"{kickoff}?wait=0.3"))
    assert status["state"] == "PENDING"
    assert time.monotonic() - begun >= 0.3


async def test_what_is_told_after_the_wait_is_how_it_stands_then(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    held = asyncio.create_task(crew.status(f"{kickoff}?wait=0.5"))
    await is_held(crew.server, kickoff)
    await run.start_task(0)
    assert (await held)["current_task"] == "research"


async def test_an_ended_kickoff_is_told_at_once(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.succeed()
    status = await promptly(crew.status(f"{kickoff}?wait=60"))
    assert status["state"] == "SUCCESS"


@pytest.mark.parametrize("wait", ["0", "0.0", "-0"])
async def test_no_wait_is_told_at_once(crew: Crew, wait: str) -> None:
    status = await promptly(crew.status(f"{await crew.kickoff()}?wait={wait}"))
    assert status["state"] == "PENDING"


@pytest.mark.parametrize(
    "wait", ["", "soon", "-1", "60.1", "1e9", "nan", "inf", "10s", "1,5", "%00", "0x10", "1_0", "٣"]
)
async def test_a_bad_wait_is_refused(crew: Crew, wait: str) -> None:
    answer = await crew.get(f"/status/{await crew.kickoff()}?wait={wait}")
    assert answer.status_code == 400
    assert answer.json()["message"] == "`wait` must be a number of seconds from 0 to 60."


async def test_other_parameters_are_passed_over(crew: Crew) -> None:
    assert (await crew.status(f"{await crew.kickoff()}?verbose=1"))["state"] == "PENDING"


async def test_an_unknown_kickoff_is_not_waited_for(crew: Crew) -> None:
    assert (await promptly(crew.get(f"/status/{unknown_id()}?wait=60"))).status_code == 404


async def test_an_end_that_nobody_heard_of_is_told_when_the_server_hears_again(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    held = asyncio.create_task(promptly(crew.status(f"{kickoff}?wait=60")))
    await is_held(crew.server, kickoff)
    await crew.server.listener.stop()
    await run.succeed()
    await crew.server.listener.start()
    status = await held
    assert status["state"] == "SUCCESS"


async def test_others_are_served_while_many_wait(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    held = [asyncio.create_task(crew.status(f"{kickoff}?wait=60")) for _ in range(50)]
    await is_held(crew.server, kickoff)
    assert (await promptly(crew.status(kickoff)))["state"] == "STARTED"
    assert not any(one.done() for one in held)
    await run.succeed()
    assert {status["state"] for status in await asyncio.gather(*held)} == {"SUCCESS"}

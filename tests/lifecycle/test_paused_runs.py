"""A run that asks a person holds nothing, and goes on after the answer."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING

from lifecycle.running import zygotes
from patience import DEADLINE
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.questions import Answer
from windlass.kickoffs.states import State
from windlass.store.audit import Actor

if TYPE_CHECKING:
    from uuid import UUID

    from lifecycle.running import World
    from windlass.kickoffs.questions import QuestionRow
    from windlass.store.reading import KickoffStatus

ANN = Actor(None, "ann")
YES = Answer(approved=True)


async def asking(world: World, kickoff: UUID) -> KickoffStatus:
    """Its status when it waits for a person."""
    async with asyncio.timeout(DEADLINE):
        status = await world.statuses.get_ended(kickoff, DEADLINE, or_asking=True)
    assert status is not None
    assert status.state is State.PENDING_HUMAN_INPUT, status
    return await world.status(kickoff)


async def question_of(world: World, kickoff: UUID) -> QuestionRow:
    (question,) = [one for one in await world.store.open_questions() if one.kickoff_id == kickoff]
    return question


async def answered(world: World, kickoff: UUID, answer: Answer = YES) -> State | None:
    return await world.store.answer((await question_of(world, kickoff)).id, answer, ANN)


async def test_it_holds_no_process_no_slot_and_no_folder(world: World) -> None:
    worker = await world.worker(slots=1)
    kickoff = await world.accept(do="ask")
    await asking(world, kickoff)
    async with asyncio.timeout(DEADLINE):
        while any(world.folder.joinpath("runs").rglob("asked.txt")):  # noqa: ASYNC110 - a thread removes it
            await asyncio.sleep(0.01)
    other = await world.accept(do="echo")
    assert (await world.ended(other)).state is State.SUCCESS  # its one slot is free
    assert worker.claiming
    (row,) = await world.database.rows("SELECT * FROM kickoffs WHERE id = %(id)s", {"id": kickoff})
    assert (row["worker_id"], row["lease_until"]) == (None, None)


async def test_it_goes_on_after_the_answer_with_its_files_and_its_journal(world: World) -> None:
    await world.worker()
    kickoff = await world.accept(do="ask", times=2)
    for number in (1, 2):
        await asking(world, kickoff)
        assert await answered(world, kickoff) is State.PENDING_HUMAN_INPUT
        async with asyncio.timeout(DEADLINE):
            while (await world.status(kickoff)).attempt == number:  # noqa: ASYNC110 - polls the database
                await asyncio.sleep(0.01)
    status = await world.ended(kickoff)
    assert (status.state, status.output, status.attempt) == (State.SUCCESS, '"answered; the file has 1"', 3)
    ended = [one.ended_as for one in await world.store.attempts(kickoff)]
    assert ended == ["paused", "paused", "SUCCESS"]
    assert await world.losses(kickoff) == 0
    asked = [row["payload"] for row in await world.events(kickoff) if row["type"] == "human_input_requested"]
    assert [one["task_id"] for one in asked] == [str(one.id) for one in await world.store.questions_of(kickoff)]
    assert {(one["question"], one["draft"], one["task"]) for one in asked} == {("Is it good?", "a draft", "run")}


async def test_a_stop_while_it_waits_ends_it(world: World) -> None:
    await world.worker()
    kickoff = await world.accept(do="ask")
    await asking(world, kickoff)
    assert await world.store.stop(kickoff) is State.CANCELLED
    assert (await world.ended(kickoff)).attempt == 1


async def test_a_process_that_waits_alive_gets_the_answer(world: World) -> None:
    await world.worker()
    kickoff = await world.accept(do="ask_alive")
    status = await asking(world, kickoff)
    assert status.human_input is not None
    (event,) = [row for row in await world.events(kickoff) if row["type"] == "human_input_requested"]
    assert event["payload"]["task_id"] == json.loads(str(status.human_input))["task_id"]
    assert await answered(world, kickoff, Answer(approved=False, feedback="shorter")) is State.STARTED
    done = await world.ended(kickoff)
    assert (done.output, done.attempt) == ('"False shorter"', 1)


async def test_a_process_that_waits_alive_and_gets_no_answer_in_time_ends(world: World) -> None:
    await world.worker(renewal=0.2)
    kickoff = await world.accept(do="ask_alive")
    await asking(world, kickoff)
    await world.database.execute(
        "UPDATE questions SET asked_at = now() - interval '61 s', expires_at = now() - interval '1 s'"
    )
    done = await world.ended(kickoff)
    assert (done.state, done.reason) == (State.TIMED_OUT, "timed_out")
    assert "approval_timeout" in (done.error or "")


async def test_a_process_that_is_lost_while_it_waits_asks_again_and_its_question_stays(world: World) -> None:
    await world.worker()
    kickoff = await world.accept(do="ask_alive")
    await asking(world, kickoff)
    before = await question_of(world, kickoff)
    zygotes()[0].kill()
    async with asyncio.timeout(DEADLINE):
        while (await question_of(world, kickoff)).number == before.number:  # noqa: ASYNC110 - polls the database
            await asyncio.sleep(0.01)
    assert (await question_of(world, kickoff)).id == before.id
    asked = [row["payload"] for row in await world.events(kickoff) if row["type"] == "human_input_requested"]
    assert {(one["task_id"], one["asked_at"]) for one in asked[1:]} == {(str(before.id), before.asked_at.isoformat())}
    assert len(asked) == 2
    await answered(world, kickoff, Answer(approved=True, feedback="fine"))
    done = await world.ended(kickoff)
    assert (done.output, done.attempt) == ('"True fine"', 2)


async def test_the_time_of_the_wait_does_not_count_against_the_timeout(world: World) -> None:
    await world.worker(limits=Limits(timeout=60))
    kickoff = await world.accept(do="ask")
    await asking(world, kickoff)
    await world.database.execute(
        "UPDATE kickoffs SET started_at = started_at - interval '1 h', paused_at = paused_at - interval '1 h'"
    )
    await answered(world, kickoff)
    assert (await world.ended(kickoff)).state is State.SUCCESS


async def test_the_time_for_which_a_process_waits_alive_does_not_count_either(world: World) -> None:
    await world.worker(limits=Limits(timeout=5))
    kickoff = await world.accept(do="ask_alive")
    await asking(world, kickoff)
    await asyncio.sleep(6)
    await answered(world, kickoff)
    done = await world.ended(kickoff)
    assert (done.state, done.attempt) == (State.SUCCESS, 1)
    assert done.paused_for > timedelta(seconds=5)


async def test_a_kickoff_whose_files_are_gone_fails_after_the_answer_with_that_reason(world: World) -> None:
    await world.worker()
    kickoff = await world.accept(do="ask")
    await asking(world, kickoff)
    world.project.rename(world.project.with_name("elsewhere"))
    await answered(world, kickoff)
    done = await world.ended(kickoff)
    assert (done.state, done.reason) == (State.FAILED, "error")
    assert str(world.project) in (done.error or "")


async def test_a_question_has_the_time_limit_and_the_answer_of_the_settings(world: World) -> None:
    await world.database.execute(
        'UPDATE deployments SET settings = \'{"approval_timeout": 0.2, "approval_on_timeout": "approve"}\''
    )
    await world.worker(renewal=0.2)
    kickoff = await world.accept(do="ask")
    assert (await world.ended(kickoff)).state is State.SUCCESS
    (question,) = await world.store.questions_of(kickoff)
    assert (question.approved, question.answered_by) == (True, "(time limit)")

"""What was asked to stop ends, and nothing brings it back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from store.kickoff_rows import DONE, FAILED, Rows
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.outcome import STOPPED, Outcome, failure
from windlass.kickoffs.states import Reason, State
from windlass.kickoffs.tasks import TaskRecords
from windlass_child.protocol.messages import TaskStarted

if TYPE_CHECKING:
    from uuid import UUID

TIMED_OUT = Outcome(State.TIMED_OUT, reason=Reason.TIMED_OUT, error="it took too long")
OVER_LIMIT = failure(Reason.LIMIT, "it used too much memory")
LOST_TOO_OFTEN = failure(Reason.LOST, "it was lost too often")
CANCELLED = Outcome(State.CANCELLED, reason=Reason.CANCELLED, error="by the runner")


async def is_cancelled(rows: Rows, kickoff: UUID, states: list[str]) -> None:
    status = await rows.status(kickoff)
    assert (status.state, status.reason, status.error) == (State.CANCELLED, "cancelled", STOPPED)
    assert status.finished_at is not None
    assert [task["state"] for task in await rows.tasks(kickoff)] == states
    assert await rows.column(kickoff, "lease_until") is None
    assert await rows.claim(slots=9) == []


async def test_one_that_waits_ends_at_once(rows: Rows) -> None:
    (kickoff,) = await rows.accept()
    assert await rows.store.stop(kickoff) is State.CANCELLED
    await is_cancelled(rows, kickoff, ["skipped", "skipped"])


async def test_one_whose_time_lies_ahead_never_comes_due(rows: Rows) -> None:
    (kickoff,) = await rows.accept(run_at=datetime.now(UTC) + timedelta(hours=1))
    assert await rows.store.stop(kickoff) is State.CANCELLED
    await rows.come_due()
    await is_cancelled(rows, kickoff, ["skipped", "skipped"])


async def test_one_that_waits_for_a_person_ends_at_once(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.database.execute(
        "UPDATE kickoffs SET state = 'PENDING_HUMAN_INPUT', worker_id = NULL, lease_until = NULL"
    )
    assert await rows.store.stop(claimed.id) is State.CANCELLED
    await is_cancelled(rows, claimed.id, ["skipped", "skipped"])


async def test_one_that_runs_is_its_workers_to_end(rows: Rows) -> None:
    claimed = await rows.started()
    assert await rows.store.stop(claimed.id) is State.STARTED
    assert (await rows.status(claimed.id)).state is State.STARTED
    assert await rows.store.renew(rows.worker, [claimed.id], 60.0) == {(claimed.id, 1): True}
    assert await rows.settle(claimed, CANCELLED)
    await is_cancelled(rows, claimed.id, ["skipped", "skipped"])


@pytest.mark.parametrize(
    "outcome", [DONE, FAILED, TIMED_OUT, OVER_LIMIT, LOST_TOO_OFTEN], ids=lambda one: one.reason or "done"
)
async def test_a_stop_that_was_confirmed_is_the_end_of_the_kickoff(rows: Rows, outcome: Outcome) -> None:
    claimed = await rows.started()
    await rows.store.stop(claimed.id)
    assert await rows.settle(claimed, outcome) is State.CANCELLED
    await is_cancelled(rows, claimed.id, ["skipped", "skipped"])


async def test_a_result_that_came_after_a_confirmed_stop_is_kept(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.store.stop(claimed.id)
    await rows.settle(claimed, DONE)
    assert await rows.column(claimed.id, "output") == DONE.output


@pytest.mark.parametrize("way", ["put back", "released", "reaped", "reaped for the last time"])
async def test_one_whose_worker_dies_or_stops_is_not_run_again(rows: Rows, way: str) -> None:
    claimed = await rows.started()
    records = TaskRecords(claimed.manifest.tasks)
    records.start(TaskStarted(0, "aa", "plan", None, 1.0))
    await rows.write(claimed, records)
    await rows.store.stop(claimed.id)
    if way == "put back":
        assert await rows.requeue(claimed, max_losses=0) is State.CANCELLED
    elif way == "released":
        assert await rows.store.release(rows.worker) == [(claimed.id, 1, State.CANCELLED)]
    else:
        await rows.end_leases()
        losses = 3 if way == "reaped" else 0
        assert await rows.store.reap(max_losses=losses) == [(claimed.id, State.CANCELLED)]
    await rows.come_due()
    await is_cancelled(rows, claimed.id, ["failed", "skipped"])


async def test_one_that_was_given_back_and_is_stopped_then_ends_at_once(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.requeue(claimed)
    assert await rows.store.stop(claimed.id) is State.CANCELLED
    await rows.come_due()
    await is_cancelled(rows, claimed.id, ["skipped", "skipped"])


@pytest.mark.parametrize("outcome", [DONE, FAILED])
async def test_one_that_has_ended_stays_as_it_ended(rows: Rows, outcome: Outcome) -> None:
    claimed = await rows.started()
    await rows.settle(claimed, outcome)
    before = await rows.status(claimed.id)
    assert await rows.store.stop(claimed.id) is outcome.state
    assert await rows.status(claimed.id) == before


async def test_to_stop_twice_is_to_stop_once(rows: Rows) -> None:
    (waiting,), running = await rows.accept(), new_id()
    assert [await rows.store.stop(waiting) for _ in range(2)] == [State.CANCELLED] * 2
    running = (await rows.started()).id
    await rows.store.stop(running)
    asked = await rows.column(running, "stop_requested_at")
    assert await rows.store.stop(running) is State.STARTED
    assert await rows.column(running, "stop_requested_at") == asked


async def test_many_who_stop_one_at_once_get_the_same_answer(rows: Rows) -> None:
    (kickoff,) = await rows.accept()
    answers = await asyncio.gather(*(rows.store.stop(kickoff) for _ in range(8)))
    assert set(answers) == {State.CANCELLED}


async def test_whoever_is_first_stop_or_claim_it_ends(rows: Rows) -> None:
    for _ in range(25):
        (kickoff,) = await rows.accept()
        state, claimed = await asyncio.gather(rows.store.stop(kickoff), rows.claim())
        assert state is (State.STARTED if claimed else State.CANCELLED)
        if claimed:
            assert await rows.store.release(rows.worker) == [(kickoff, 1, State.CANCELLED)]


async def test_whoever_is_first_stop_or_settle_the_answer_is_true(rows: Rows) -> None:
    for _ in range(25):
        claimed = await rows.started()
        state, settled = await asyncio.gather(rows.store.stop(claimed.id), rows.settle(claimed))
        asked = await rows.column(claimed.id, "stop_requested_at")
        assert (state, settled) == ((State.STARTED, State.CANCELLED) if asked else (State.SUCCESS, State.SUCCESS))


async def test_a_kickoff_that_is_none_is_not_stopped(rows: Rows) -> None:
    assert await rows.store.stop(new_id()) is None

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from store.kickoff_rows import DONE, FAILED, Rows
from store.whole import loaded
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.outcome import MOST_UNSTARTED, Outcome, TokenUsage, lost_too_often, never_started
from windlass.kickoffs.states import Reason, State
from windlass.kickoffs.tasks import TaskRecords, Warning_
from windlass.store.claiming import host
from windlass.store.ending import Interruption
from windlass_child.protocol.messages import TaskEnded, TaskStarted, Tokens

if TYPE_CHECKING:
    from uuid import UUID

OPEN = {"pending_run", "running", "pending_human_input"}


async def states(rows: Rows, kickoff: UUID) -> list[str]:
    return [task["state"] for task in await rows.tasks(kickoff)]


async def test_a_success_is_kept_with_all_that_came_of_it(rows: Rows) -> None:
    claimed = await rows.started(warnings='[{"code":"early","message":"m"}]')
    usage = TokenUsage()
    usage.add(Tokens(prompt=3, completion=2, total=5))
    outcome = Outcome(State.SUCCESS, output="done", structured='{"b":1,"a":[null]}')
    assert await rows.store.settle(claimed.id, 1, outcome, usage, [Warning_("late", "m", "plan")])
    status = await rows.status(claimed.id)
    assert (status.state, status.reason, status.error) == (State.SUCCESS, None, None)
    assert (status.output, status.structured) == ('"done"', '{"b":1,"a":[null]}')
    assert loaded(status.token_usage) == usage.to_json()
    assert loaded(status.warnings) == [
        {"code": "early", "message": "m"},
        {"code": "late", "message": "m", "task_id": "plan"},
    ]
    assert status.finished_at is not None


async def test_a_failure_is_kept_with_its_reason(rows: Rows) -> None:
    claimed = await rows.started()
    assert await rows.settle(claimed, FAILED)
    status = await rows.status(claimed.id)
    assert (status.state, status.reason, status.error) == (State.FAILED, "error", "it could not be done")
    assert (status.output, status.structured, status.task_outputs) == (None, None, None)


async def test_a_kickoff_ends_once(rows: Rows) -> None:
    claimed = await rows.started()
    assert await rows.settle(claimed)
    assert not await rows.settle(claimed, FAILED)
    assert (await rows.status(claimed.id)).state is State.SUCCESS


async def test_of_two_ends_at_once_one_counts(rows: Rows) -> None:
    claimed = await rows.started()
    answers = await asyncio.gather(*(rows.settle(claimed, outcome) for outcome in (DONE, FAILED) * 4))
    assert len([one for one in answers if one]) == 1


async def test_the_outcome_of_a_run_that_was_reaped_counts_for_nothing(rows: Rows) -> None:
    claimed = await rows.silent()
    await rows.store.reap(max_losses=3)
    assert not await rows.settle(claimed)
    (again,) = await rows.claim()
    assert not await rows.settle(claimed)
    assert await rows.settle(again, FAILED)


async def test_no_task_record_stays_open(rows: Rows) -> None:
    claimed = await rows.started()
    records = TaskRecords(claimed.manifest.tasks)
    records.start(TaskStarted(0, "aa", "plan", None, 1.0))
    await rows.write(claimed, records)
    await rows.settle(claimed, FAILED)
    running, waiting = await rows.tasks(claimed.id)
    assert (running["state"], waiting["state"]) == ("failed", "skipped")
    assert running["finished_at"] is not None
    assert waiting["finished_at"] is None


async def test_what_has_ended_stays_as_it_ended(rows: Rows) -> None:
    claimed = await rows.started()
    records = TaskRecords(claimed.manifest.tasks)
    records.end(TaskEnded(0, "completed", 2.0, "planned"))
    records.end(TaskEnded(1, "failed", 3.0))
    await rows.write(claimed, records)
    before = await rows.tasks(claimed.id)
    await rows.settle(claimed, FAILED)
    assert await rows.tasks(claimed.id) == before


@pytest.mark.parametrize("state", [State.PENDING, State.STARTED, State.PENDING_HUMAN_INPUT])
async def test_an_outcome_is_an_end(rows: Rows, state: State) -> None:
    claimed = await rows.started()
    with pytest.raises(ValueError, match="no run ends as"):
        await rows.settle(claimed, Outcome(state))


NO_JSON = ["", "{", "no JSON", "[1,]", '"a\x00b"', "[" * 200_000 + "]" * 200_000]


@pytest.mark.parametrize("text", NO_JSON, ids=["empty", "open", "words", "comma", "nul", "deep"])
async def test_structured_output_that_is_no_json_fails_the_kickoff_in_words(rows: Rows, text: str) -> None:
    claimed = await rows.started()
    assert await rows.settle(claimed, Outcome(State.SUCCESS, output="done", structured=text))
    status = await rows.status(claimed.id)
    assert (status.state, status.reason, status.structured) == (State.FAILED, "crashed", None)
    assert str(status.error).startswith("the run gave structured output that is no JSON, or that is nested too deep")


async def test_structured_output_is_given_back_as_it_came(rows: Rows) -> None:
    claimed = await rows.started()
    text = '{"b":1,"a":[1.50,"\\u00e9\\u0000\\ud800"],"b":2}'
    assert await rows.settle(claimed, Outcome(State.SUCCESS, output="done", structured=text))
    assert (await rows.status(claimed.id)).structured == text


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b", "\udc00\ud83d", "\\u0000", "x" * 100_000])
async def test_any_text_can_be_a_result_an_error_or_a_warning(rows: Rows, text: str) -> None:
    claimed = await rows.started()
    outcome = Outcome(State.FAILED, output=text, structured=json.dumps({text: [text]}), reason=Reason.ERROR, error=text)
    assert await rows.store.settle(claimed.id, 1, outcome, TokenUsage(), [Warning_("c", text, text)])
    status = await rows.status(claimed.id)
    assert loaded(status.output) == text
    assert loaded(status.structured) == {text: [text]}
    shown = text.replace("\x00", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert status.error == shown
    assert loaded(status.warnings) == [{"code": "c", "message": shown, "task_id": shown}]


async def test_an_output_of_20_mb_is_kept(rows: Rows) -> None:
    claimed = await rows.started()
    output = "ü" * 10_000_000
    await rows.settle(claimed, Outcome(State.SUCCESS, output=output))
    assert loaded((await rows.status(claimed.id)).output) == output


async def test_a_run_that_was_lost_is_put_back_and_counted(rows: Rows) -> None:
    claimed = await rows.started()
    assert await rows.requeue(claimed)
    status = await rows.status(claimed.id)
    assert (status.state, status.attempt, status.tasks, status.total_tasks) == (State.PENDING, 1, None, None)
    assert await rows.column(claimed.id, "losses") == 1
    assert await rows.column(claimed.id, "worker_id") is None


async def test_it_is_put_back_once(rows: Rows) -> None:
    claimed = await rows.started()
    assert await rows.requeue(claimed)
    assert not await rows.requeue(claimed)
    assert await rows.column(claimed.id, "losses") == 1


async def test_it_is_put_back_only_so_often(rows: Rows) -> None:
    await rows.accept()
    for _ in range(2):
        (claimed,) = await rows.claim()
        assert await rows.requeue(claimed, max_losses=2)
        await rows.come_due()
    (claimed,) = await rows.claim()
    assert not await rows.requeue(claimed, max_losses=2)
    assert (await rows.status(claimed.id)).state is State.STARTED


async def test_a_worker_that_stops_gives_back_what_is_its_own_without_a_loss(rows: Rows) -> None:
    await rows.accept(3)
    mine = await rows.claim(slots=2)
    (theirs,) = await rows.claim(worker=new_id())
    assert set(await rows.store.release(rows.worker)) == {(claimed.id, 1, State.PENDING) for claimed in mine}
    assert [(await rows.status(claimed.id)).state for claimed in mine] == [State.PENDING, State.PENDING]
    assert (await rows.status(theirs.id)).state is State.STARTED
    assert await rows.column(mine[0].id, "losses") == 0
    assert await rows.store.release(rows.worker) == []


async def test_the_kickoffs_of_silent_workers_wait_again(rows: Rows) -> None:
    lost = await rows.silent()
    await rows.accept()
    (living,) = await rows.claim(worker=new_id())
    assert await rows.store.reap(max_losses=3) == [(lost.id, State.PENDING)]
    assert (await rows.status(living.id)).state is State.STARTED
    assert await rows.column(lost.id, "losses") == 1
    assert await rows.store.reap(max_losses=3) == []


async def test_a_kickoff_that_was_lost_too_often_fails(rows: Rows) -> None:
    claimed = await rows.silent()
    records = TaskRecords(claimed.manifest.tasks)
    records.start(TaskStarted(0, "aa", "plan", None, 1.0))
    await rows.write(claimed, records)
    assert await rows.store.reap(max_losses=0) == [(claimed.id, State.FAILED)]
    status = await rows.status(claimed.id)
    assert (status.state, status.reason) == (State.FAILED, "lost")
    happened = "The last time: its worker's lease ended: the worker on the machine "
    assert str(status.error).startswith(f"{lost_too_often(0)} {happened}")
    assert status.finished_at is not None
    running, waiting = await rows.tasks(claimed.id)
    assert (running["state"], waiting["state"]) == ("failed", "skipped")
    assert running["finished_at"] is not None


async def test_an_attempt_without_a_process_is_no_loss_until_there_are_many_in_a_row(rows: Rows) -> None:
    (kickoff,) = await rows.accept()
    for attempt in range(1, MOST_UNSTARTED):
        (claimed,) = await rows.claim()
        if attempt % 2:
            await rows.end_leases()
            assert await rows.store.reap(max_losses=3) == [(kickoff, State.PENDING)]
        else:
            lost = Interruption("no process could be started", claimed.usage)
            assert await rows.store.requeue(kickoff, attempt, lost, max_losses=3, process_started=False)
            await rows.come_due()
        assert await rows.column(kickoff, "losses") == 0
        assert await rows.column(kickoff, "unstarted") == attempt
    await rows.claim()
    await rows.end_leases()
    assert await rows.store.reap(max_losses=3) == [(kickoff, State.FAILED)]
    status = await rows.status(kickoff)
    assert (status.state, status.reason) == (State.FAILED, "lost")
    assert str(status.error).startswith(
        f"{never_started(3)} The last time: its worker's lease ended before the process"
    )
    assert f"the worker on the machine {host()} last reported " in str(status.error)


async def test_a_process_that_starts_ends_the_row_of_attempts_without_one(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.end_leases()
    await rows.store.reap(max_losses=3)
    (claimed,) = await rows.claim()
    await rows.begin(claimed)
    assert await rows.column(claimed.id, "unstarted") == 0
    await rows.end_leases()
    await rows.store.reap(max_losses=3)
    assert await rows.column(claimed.id, "losses") == 1
    await rows.claim()
    assert await rows.column(claimed.id, "process_started") is False, "that of the next attempt has not"


async def test_of_reapers_at_once_one_gets_each_kickoff(rows: Rows) -> None:
    await rows.accept(20)
    claimed = await rows.claim(slots=20)
    await rows.end_leases()
    found = await asyncio.gather(*(rows.store.reap(max_losses=3) for _ in range(5)))
    assert sorted(kickoff for some in found for kickoff, _ in some) == sorted(one.id for one in claimed)


async def test_reaping_goes_on_where_one_turn_stopped(rows: Rows) -> None:
    await rows.accept(3)
    await rows.claim(slots=3)
    await rows.end_leases()
    turns = [len(await rows.store.reap(max_losses=3, limit=2)) for _ in range(3)]
    assert turns == [2, 1, 0]


async def test_a_server_that_is_alone_ends_the_leases_of_the_dead_one(rows: Rows) -> None:
    claimed = await rows.started()
    assert await rows.store.end_all_leases() == 1
    assert await rows.store.reap(max_losses=3) == [(claimed.id, State.PENDING)]


async def test_an_unknown_kickoff_has_no_status(rows: Rows) -> None:
    (kickoff,) = await rows.accept()
    stranger = new_id()
    assert list(await rows.store.statuses([stranger, kickoff])) == [kickoff]


async def test_however_it_ends_no_record_is_left_open(rows: Rows) -> None:
    for outcome in (DONE, FAILED, Outcome(State.TIMED_OUT, reason=Reason.TIMED_OUT), Outcome(State.CANCELLED)):
        claimed = await rows.started()
        await rows.settle(claimed, outcome)
        assert (await rows.status(claimed.id)).state is outcome.state
        assert not OPEN & set(await states(rows, claimed.id))

"""What is kept of a kickoff's attempts: how each ended, and what the next one need not do again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from store.kickoff_rows import DONE, FAILED
from windlass.kickoffs.events import stored_event
from windlass.kickoffs.outcome import TokenUsage
from windlass.kickoffs.states import State, TaskState
from windlass.kickoffs.tasks import pending_records
from windlass.store.claiming import Claimed, JournalRow
from windlass.store.ending import Interruption
from windlass.store.reporting import Batch, JournalEntry

if TYPE_CHECKING:
    from store.kickoff_rows import Rows

WHY = "its process was lost"
USED = TokenUsage(total_tokens=7, successful_requests=2)


async def attempts(rows: Rows) -> list[tuple[int, str | None, str | None, bool]]:
    found = await rows.database.rows("SELECT * FROM attempts ORDER BY attempt")
    return [(row["attempt"], row["ended_as"], row["why"], row["ended_at"] is not None) for row in found]


async def completed(rows: Rows, run: Claimed, position: int, number: int | None) -> None:
    """A task that ended well, with its entry in the journal where it has a number."""
    record = pending_records(rows.version.manifest.tasks)[position]
    done = replace(record, state=TaskState.COMPLETED, output=f"output {position}", started_at=1.0, finished_at=3.0)
    entries = (
        []
        if number is None
        else [JournalEntry(number, f"task {position}", "sealed", position, output_elsewhere=position == 0)]
    )
    batch = Batch(records=[replace(done, execution_time=2.0)], entries=entries)
    assert await rows.store.write_reports(run.id, run.attempt, batch)


async def begun(rows: Rows, run: Claimed, position: int, at: float) -> None:
    record = pending_records(rows.version.manifest.tasks)[position]
    running = replace(record, state=TaskState.RUNNING, started_at=at)
    assert await rows.store.write_reports(run.id, run.attempt, Batch(records=[running]))


@pytest.mark.parametrize(
    ("outcome", "told"), [(DONE, ("SUCCESS", None)), (FAILED, ("FAILED", FAILED.error))], ids=["well", "badly"]
)
async def test_an_attempt_ends_as_its_kickoff_does(rows: Rows, outcome: Any, told: tuple[str, str | None]) -> None:
    claimed = await rows.started()
    assert await attempts(rows) == [(1, None, None, False)]
    await rows.settle(claimed, outcome)
    assert await attempts(rows) == [(1, *told, True)]


async def test_each_attempt_tells_why_the_kickoff_went_on_without_it(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.requeue(claimed)
    await rows.come_due()
    await rows.claim()
    await rows.store.release(rows.worker)
    await rows.claim()
    await rows.end_leases()
    await rows.store.reap(max_losses=3)
    (claimed,) = await rows.claim()
    await rows.store.retry(claimed.id, claimed.attempt, Interruption("it broke", USED), pause=0)
    await rows.come_due()
    (claimed,) = await rows.claim()
    await rows.settle(claimed)
    found = await attempts(rows)
    assert [one[1] for one in found] == ["lost", "released", "lost", "retried", "SUCCESS"]
    assert [one[2] for one in found[:2]] == [WHY, "its worker stopped"]
    assert "lease ended" in (found[2][2] or "")
    assert [one[2] for one in found[3:]] == ["it broke", None]


async def test_what_the_journal_holds_stays_completed_and_the_rest_is_to_be_run(rows: Rows) -> None:
    claimed = await rows.started()
    await completed(rows, claimed, 0, number=1)
    await completed(rows, claimed, 1, number=None)
    await rows.requeue(claimed)
    states = [record.state for record in await rows.store.earlier_records(claimed.id)]
    assert states == [TaskState.COMPLETED, TaskState.PENDING_RUN]
    await rows.come_due()
    (again,) = await rows.claim()
    kept, reopened = await rows.store.earlier_records(claimed.id)
    assert (kept.state, kept.execution_time) == (TaskState.COMPLETED, 2.0)
    assert (reopened.state, reopened.execution_time) == (TaskState.PENDING_RUN, 2.0)
    assert await rows.store.journal(again.id) == [JournalRow(1, "task 0", "sealed", "output 0")]
    (row,) = await rows.database.rows("SELECT restored FROM attempts WHERE attempt = 2")
    assert row["restored"] == 1


async def test_only_what_was_kept_apart_comes_with_the_output_of_its_task_record(rows: Rows) -> None:
    claimed = await rows.started()
    await completed(rows, claimed, 0, number=1)
    await completed(rows, claimed, 1, number=2)
    found = await rows.store.journal(claimed.id)
    assert [entry.output for entry in found] == ["output 0", None]


async def test_a_large_journal_is_read_in_parts(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.store.claiming.BYTES_AT_ONCE", 100)
    claimed = await rows.started()
    sizes = (40, 40, 40, 1000, 1)
    entries = [JournalEntry(number, f"step {number}", "x" * size) for number, size in enumerate(sizes, 1)]
    assert await rows.store.write_reports(claimed.id, 1, Batch(entries=entries))
    parts, last = [], 0
    while part := await rows.store.journal(claimed.id, last):
        parts.append([entry.number for entry in part])
        last = part[-1].number
    assert parts == [[1, 2, 3], [4], [5]]


async def test_a_step_that_was_run_once_more_when_it_was_cut_short_is_to_be_run(rows: Rows) -> None:
    claimed = await rows.started()
    await completed(rows, claimed, 0, number=1)
    await begun(rows, claimed, 0, at=1000.0)
    await rows.requeue(claimed)
    (record, _) = await rows.store.earlier_records(claimed.id)
    assert record.state is TaskState.PENDING_RUN


async def test_the_time_of_a_task_that_was_cut_short_counts_up_to_the_last_word_of_its_run(rows: Rows) -> None:
    claimed = await rows.started()
    await begun(rows, claimed, 0, at=1000.0)
    await rows.store.write_reports(claimed.id, 1, Batch(events=[stored_event(1, "still_there", 1004.5, {})]))
    await rows.requeue(claimed)
    (record, _) = await rows.store.earlier_records(claimed.id)
    assert (record.state, record.execution_time, record.started_at) == (TaskState.PENDING_RUN, 4.5, None)


async def test_the_tokens_of_all_attempts_add_up(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.store.write_reports(claimed.id, 1, Batch(usage=USED))
    await rows.end_leases()
    await rows.store.reap(max_losses=3)
    (again,) = await rows.claim()
    assert again.usage == USED
    more = TokenUsage(total_tokens=9, successful_requests=3)
    await rows.store.requeue(again.id, again.attempt, Interruption(WHY, more), max_losses=3)
    await rows.come_due()
    (again,) = await rows.claim()
    assert again.usage == more


async def test_the_model_calls_of_all_attempts_add_up_and_are_never_fewer(rows: Rows) -> None:
    claimed = await rows.started()
    assert claimed.model_calls == 0
    await rows.store.write_reports(claimed.id, 1, Batch(model_calls=3))
    await rows.store.write_reports(claimed.id, 1, Batch(usage=USED))
    await rows.end_leases()
    await rows.store.reap(max_losses=3)
    (again,) = await rows.claim()
    assert again.model_calls == 3


async def test_a_step_is_not_journaled_for_an_attempt_that_is_over(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.requeue(claimed)
    assert not await rows.store.write_reports(claimed.id, 1, Batch(entries=[JournalEntry(1, "step", "sealed")]))
    assert await rows.store.journal(claimed.id) == []


async def test_a_step_that_was_written_when_the_answer_was_lost_is_written_once(rows: Rows) -> None:
    claimed = await rows.started()
    for _ in range(2):
        assert await rows.store.write_reports(claimed.id, 1, Batch(entries=[JournalEntry(1, "step", "sealed")]))
    assert await rows.store.journal(claimed.id) == [JournalRow(1, "step", "sealed", None)]


async def test_one_that_is_to_stop_is_not_tried_again(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.store.stop(claimed.id)
    assert not await rows.store.retry(claimed.id, 1, Interruption("it broke", USED), pause=0)
    assert (await rows.status(claimed.id)).state is State.STARTED


async def test_one_that_is_tried_again_waits_for_its_pause_and_loses_nothing(rows: Rows) -> None:
    claimed = await rows.started()
    assert await rows.store.retry(claimed.id, 1, Interruption("it broke", USED), pause=60)
    assert await rows.claim() == []
    await rows.come_due()
    (again,) = await rows.claim()
    assert (again.attempt, again.retries) == (2, 1)
    assert await rows.column(again.id, "losses") == 0


async def test_one_that_came_further_since_its_last_loss_may_be_lost_as_often_again(rows: Rows) -> None:
    await rows.silent()
    await rows.store.reap(max_losses=3)
    (again,) = await rows.claim()
    assert await rows.column(again.id, "losses") == 1
    await completed(rows, again, 0, number=1)
    assert await rows.column(again.id, "losses") == 0


async def test_one_that_lost_its_process_is_kept_apart_and_one_that_lost_its_worker_is_not(rows: Rows) -> None:
    claimed = await rows.silent()
    await rows.store.reap(max_losses=3)
    (again,) = await rows.claim()
    assert not again.isolated
    await rows.requeue(again)
    await rows.come_due()
    (again,) = await rows.claim()
    assert again.isolated
    assert again.id == claimed.id


async def test_whose_key_waits_for_another_try_holds_up_nobody(rows: Rows) -> None:
    claimed = await rows.started(concurrency_key="k")
    (behind,) = await rows.accept(concurrency_key="k")
    await rows.store.retry(claimed.id, 1, Interruption("it broke", USED), pause=60)
    assert await rows.claimed_ids(slots=9) == [behind]

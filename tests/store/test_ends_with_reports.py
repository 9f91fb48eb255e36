"""The last reports of a run are written together with its outcome."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from store.kickoff_rows import DONE
from windlass.errors import Unstorable
from windlass.kickoffs.events import stored_event
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.outcome import TokenUsage
from windlass.kickoffs.states import State, TaskState
from windlass.kickoffs.tasks import TaskRecord, TaskRecords, Warning_
from windlass.lifecycle.run_recorder import RunRecorder
from windlass.runner import LeaseHandle, Terminator
from windlass.store.reporting import Batch, JournalEntry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from store.kickoff_rows import Rows
    from windlass.store.claiming import Claimed

OUTCOME = replace(DONE, output="found")
RECORD = TaskRecord(0, "find", "k", "find", "clerk", TaskState.COMPLETED, output="x", execution_time=1.0)
LAST = Batch([stored_event(1, "crew_kickoff_completed", 1.0, {"a": 1})], [RECORD], model_calls=3)


async def test_the_outcome_and_the_last_reports_are_committed_together(rows: Rows) -> None:
    run = await rows.started()
    warnings, usage = [Warning_("odd", "Odd.")], TokenUsage(total_tokens=5)
    assert await rows.store.settle(run.id, run.attempt, OUTCOME, usage, warnings, last=LAST)
    status = await rows.status(run.id)
    assert status.state is State.SUCCESS
    assert [event.type for event in await rows.store.events(run.id)] == ["crew_kickoff_completed"]
    first, _ = await rows.tasks(run.id)
    assert (first["task_id"], first["state"]) == ("find", "completed")
    assert await rows.column(run.id, "output") == "found"
    assert await rows.column(run.id, "model_calls") == 3
    assert (await rows.column(run.id, "token_usage"))["total_tokens"] == 5
    assert [one["code"] for one in await rows.column(run.id, "warnings")] == ["odd"]


async def test_tasks_that_the_last_reports_leave_open_are_closed(rows: Rows) -> None:
    run = await rows.started()
    last = replace(LAST, records=[replace(RECORD, state=TaskState.RUNNING, output=None)])
    assert await rows.store.settle(run.id, run.attempt, OUTCOME, TokenUsage(), [], last=last)
    assert [task["state"] for task in await rows.tasks(run.id)] == ["failed", "skipped"]


async def test_a_run_that_is_no_longer_the_kickoffs_writes_none_of_its_last_reports(rows: Rows) -> None:
    run = await rows.started()
    assert not await rows.store.settle(run.id, run.attempt + 1, OUTCOME, TokenUsage(), [], last=LAST)
    await rows.settle(run)
    assert not await rows.store.settle(run.id, run.attempt, OUTCOME, TokenUsage(), [], last=LAST)
    assert await rows.store.events(run.id) == []
    assert await rows.column(run.id, "output") != "found"


async def test_nothing_is_written_when_a_report_can_not_be_stored(rows: Rows) -> None:
    run = await rows.started()
    broken = replace(LAST, events=[replace(LAST.events[0], payload="{")])
    with pytest.raises(Unstorable):
        await rows.store.settle(run.id, run.attempt, OUTCOME, TokenUsage(), [], last=broken)
    assert (await rows.status(run.id)).state is State.STARTED
    assert await rows.store.settle(run.id, run.attempt, OUTCOME, TokenUsage(), [], last=LAST)


ENTRY = JournalEntry(1, "task/a", "sealed", 0)


@asynccontextmanager
async def recording(rows: Rows, run: Claimed) -> AsyncIterator[RunRecorder]:
    """A recorder that writes until the end of the block, where it is closed."""
    records = TaskRecords(run.manifest.tasks)
    recorder = RunRecorder(rows.store, run, records, LeaseHandle(), Limits(), Terminator())
    writing = asyncio.create_task(recorder.write())
    try:
        yield recorder
        recorder.close()
        await writing
    finally:
        writing.cancel()


async def entries(rows: Rows, run: Claimed) -> list[str]:
    return [row.record for row in await rows.store.journal(run.id, 0)]


async def test_a_journal_entry_is_written_before_the_outcome(rows: Rows) -> None:
    """A worker that is killed before it writes the outcome does not run the step again."""
    run = await rows.started()
    async with recording(rows, run) as recorder:
        await recorder.journal(ENTRY)
        recorder.hold()
        recorder.wake()
    assert recorder.last is None
    assert await entries(rows, run) == ["sealed"]


async def test_a_journal_entry_does_not_wait_for_the_end_of_a_run(rows: Rows) -> None:
    run = await rows.started()
    async with recording(rows, run) as recorder, asyncio.timeout(30):
        await recorder.journal(ENTRY)
        recorder.hold()
        recorder.wake()
        while not await entries(rows, run):  # noqa: ASYNC110 - a row
            await asyncio.sleep(0.01)

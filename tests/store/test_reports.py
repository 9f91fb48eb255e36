from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.kickoff_rows import DONE
from store.whole import events_of, loaded
from windlass.kickoffs.events import stored_event
from windlass.kickoffs.outcome import TokenUsage
from windlass.kickoffs.tasks import TaskRecord, TaskRecords, Warning_
from windlass_child.protocol.messages import TaskEnded, TaskStarted

if TYPE_CHECKING:
    from store.kickoff_rows import Rows
    from windlass.kickoffs.events import StoredEvent
    from windlass.store.database import Row


def events(*numbers: int, kind: str = "kind") -> list[StoredEvent]:
    return [stored_event(number, kind, 1000.5 + number, {"n": number}) for number in numbers]


async def test_events_are_kept_in_their_order(rows: Rows) -> None:
    claimed = await rows.started()
    assert await rows.write_reports(claimed.id, 1, events(2, 1), [])
    assert await rows.write_reports(claimed.id, 1, events(3), [])
    found = await events_of(rows.store, claimed.id)
    assert [(row["seq"], row["attempt"], row["type"], row["payload"]) for row in found] == [
        (1, 1, "kind", {"n": 1}),
        (2, 1, "kind", {"n": 2}),
        (3, 1, "kind", {"n": 3}),
    ]
    assert [row["at"].timestamp() for row in found] == [1001.5, 1002.5, 1003.5]


async def test_events_are_read_from_where_one_stopped(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.write_reports(claimed.id, 1, events(*range(1, 8)), [])
    assert [event.seq for event in await rows.store.events(claimed.id, after=2, limit=3)] == [3, 4, 5]
    assert (await rows.store.stored_so_far(claimed.id)).last_event == 7


async def test_before_the_first_event_there_is_none(rows: Rows) -> None:
    claimed = await rows.started()
    assert (await rows.store.stored_so_far(claimed.id)).last_event == 0


async def test_a_batch_that_is_written_again_changes_nothing(rows: Rows) -> None:
    claimed = await rows.started()
    records = TaskRecords(claimed.manifest.tasks)
    records.start(TaskStarted(0, "aa", "plan", None, 1.0))
    changed = records.take_changed()
    for _ in range(2):
        assert await rows.write_reports(claimed.id, 1, events(1, 2), changed)
    assert numbers(await events_of(rows.store, claimed.id)) == [1, 2]
    assert [task["state"] for task in await rows.tasks(claimed.id)] == ["running", "pending_run"]


async def test_task_records_move(rows: Rows) -> None:
    claimed = await rows.started()
    records = TaskRecords(claimed.manifest.tasks)
    records.start(TaskStarted(0, "aa", "plan", "Leader", 10.0))
    await rows.write(claimed, records)
    status = await rows.status(claimed.id)
    assert (status.current_task, status.completed_tasks, status.total_tasks) == ("plan", 0, 2)
    records.end(TaskEnded(0, "completed", 12.0, "planned", None, 2.0))
    records.start(TaskStarted(1, "bb", None, None, 12.0))
    await rows.write(claimed, records)
    first, second = await rows.tasks(claimed.id)
    assert first == {
        "task_id": "plan",
        "key": "aa",
        "name": "plan",
        "agent": "Leader",
        "state": "completed",
        "unregistered": False,
        "started_at": "1970-01-01T00:00:10.000000Z",
        "finished_at": "1970-01-01T00:00:12.000000Z",
    }
    assert (second["state"], second["finished_at"]) == ("running", None)
    status = await rows.status(claimed.id)
    assert (status.current_task, status.completed_tasks) == ("bb", 1)


async def test_an_unregistered_task_gets_a_record_of_its_own(rows: Rows) -> None:
    claimed = await rows.started()
    records = TaskRecords(claimed.manifest.tasks)
    records.start(TaskStarted(2, "cc", "extra", None, 1.0))
    await rows.write(claimed, records)
    assert [(task["task_id"], task["unregistered"]) for task in await rows.tasks(claimed.id)] == [
        ("plan", False),
        ("bb", False),
        ("extra", True),
    ]


@pytest.mark.parametrize("end", ["put_back", "reap", "release", "settle", "claimed_again"])
async def test_nothing_is_written_for_a_run_that_is_over(rows: Rows, end: str) -> None:
    claimed = await rows.started()
    await rows.write_reports(claimed.id, 1, events(1), [])
    if end == "settle":
        await rows.settle(claimed)
    elif end == "reap":
        await rows.end_leases()
        await rows.store.reap(max_losses=3)
    elif end == "release":
        await rows.store.release(rows.worker)
    else:
        await rows.requeue(claimed)
    if end == "claimed_again":
        await rows.come_due()
        assert await rows.claim()
    before = await rows.tasks(claimed.id)
    running = TaskRecord(0, "plan", "aa", "plan", None)
    assert not await rows.write_reports(claimed.id, 1, events(2), [running])
    assert numbers(await events_of(rows.store, claimed.id)) == [1]
    assert await rows.tasks(claimed.id) == before


async def test_events_of_a_second_attempt_follow_those_of_the_first(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.write_reports(claimed.id, 1, events(1, 2), [])
    await rows.requeue(claimed)
    await rows.come_due()
    await rows.claim()
    last = (await rows.store.stored_so_far(claimed.id)).last_event
    await rows.write_reports(claimed.id, 2, events(last + 1), [])
    found = await events_of(rows.store, claimed.id)
    assert [(row["seq"], row["attempt"]) for row in found] == [(1, 1), (2, 1), (3, 2)]


STRANGE = ["a\x00b", "a\ud800b", "\udc00", '"\\', "é\N{GRINNING FACE}", "\\u0000"]


@pytest.mark.parametrize("text", STRANGE)
async def test_any_text_can_be_an_output_a_name_or_an_event(rows: Rows, text: str) -> None:
    claimed = await rows.started()
    records = TaskRecords(claimed.manifest.tasks)
    records.start(TaskStarted(2, "cc", text, text, 1.0))
    records.end(TaskEnded(2, "completed", 2.0, text, text, 1.0))
    event = stored_event(1, text, 1.0, {text: text})
    assert await rows.write_reports(claimed.id, 1, [event], records.take_changed())
    await rows.settle(claimed)
    (found,) = await events_of(rows.store, claimed.id)
    assert found["payload"] == {text: text}
    (done,) = loaded((await rows.status(claimed.id)).task_outputs)
    assert done["output"] == text
    assert done["name"] == done["task_id"] == found["type"]


async def test_a_task_output_of_20_mb_is_kept(rows: Rows) -> None:
    claimed = await rows.started()
    output = "\x00é" * 2_000_000
    records = TaskRecords(claimed.manifest.tasks)
    records.end(TaskEnded(0, "completed", 2.0, output))
    await rows.write(claimed, records)
    await rows.settle(claimed)
    (done,) = loaded((await rows.status(claimed.id)).task_outputs)
    assert done["output"] == output


def numbers(found: list[Row]) -> list[int]:
    return [row["seq"] for row in found]


async def test_warnings_are_seen_while_the_run_goes_on_and_are_kept_once(rows: Rows) -> None:
    claimed = await rows.started(warnings='[{"code":"early","message":"m"}]')
    first, second = Warning_("a", "m", "plan"), Warning_("a", "m")
    for _ in range(2):  # the answer to the first one was lost
        assert await rows.write_reports(claimed.id, 1, [], [], [first, second])
    told = [{"code": "early", "message": "m"}, first.to_json(), second.to_json()]
    assert loaded((await rows.status(claimed.id)).warnings) == told
    late = Warning_("b", "a\x00\ud800")
    await rows.store.settle(claimed.id, 1, DONE, TokenUsage(), [first, second, late])
    assert loaded((await rows.status(claimed.id)).warnings) == [*told, {"code": "b", "message": "a\ufffd\ufffd"}]


async def test_a_run_that_is_over_warns_no_more(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.requeue(claimed)
    assert not await rows.write_reports(claimed.id, 1, [], [], [Warning_("a", "m")], waiting_for="zygote")
    assert (await rows.status(claimed.id)).warnings == "[]"
    assert await rows.column(claimed.id, "waiting_for") is None

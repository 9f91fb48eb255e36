"""The chunks of streamed answers are few events, and leave room for the others."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from store.whole import events_of
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.tasks import TaskRecords
from windlass.lifecycle.run_recorder import RunRecorder
from windlass.runner import LeaseHandle, Terminator
from windlass_child.protocol.validation import Encoded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from store.kickoff_rows import Rows
    from windlass.store.claiming import Claimed

CHUNKS = 20_000
CHUNK = "llm_stream_chunk"


@asynccontextmanager
async def recording(rows: Rows, run: Claimed, event_limit: int) -> AsyncIterator[RunRecorder]:
    records = TaskRecords(run.manifest.tasks)
    recorder = RunRecorder(rows.store, run, records, LeaseHandle(), Limits(event_limit=event_limit), Terminator())
    await recorder.open()
    writing = asyncio.create_task(recorder.write())
    try:
        yield recorder
        recorder.close()
        await writing
        await recorder.write_last()
    finally:
        writing.cancel()


async def chunk(recorder: RunRecorder, call: str, text: str, **members: Any) -> None:
    await recorder.add(CHUNK, 1.0, {"call_id": call, "chunk": text, **members})
    recorder.wake()


async def found(rows: Rows, run: Claimed) -> list[tuple[str, Any]]:
    return [(row["type"], row["payload"]) for row in await events_of(rows.store, run.id)]


async def test_an_answer_of_many_chunks_leaves_room_for_the_tasks_after_it(rows: Rows) -> None:
    run = await rows.started()
    async with recording(rows, run, event_limit=500) as recorder:
        await recorder.add("task_started", 1.0, {"task_name": "plan"})
        for number in range(CHUNKS):
            data = f'{{"call_id":"{number % 2}","task_id":"t{number % 2}","chunk":" {number}"}}'
            await recorder.add(CHUNK, 1.0, Encoded(data.encode()))
            recorder.wake()
        await recorder.add("task_completed", 1.0, {"task_name": "plan"})
        for number in range(400):
            await recorder.add("output_stdout", 1.0, {"line": str(number)})
        assert recorder.take_warnings() == []
    events = await found(rows, run)
    kinds = [kind for kind, _ in events]
    assert (kinds[0], kinds.count("task_completed"), kinds.count("output_stdout")) == ("task_started", 1, 400)
    assert kinds.count(CHUNK) <= CHUNKS / 10
    for call in "01":
        mine = [payload for kind, payload in events if kind == CHUNK and payload["call_id"] == call]
        assert "".join(one["chunk"] for one in mine).split() == [str(n) for n in range(int(call), CHUNKS, 2)]
        assert {one["task_id"] for one in mine} == {f"t{call}"}


async def test_events_keep_their_order_among_chunks(rows: Rows) -> None:
    run = await rows.started()
    async with recording(rows, run, event_limit=500) as recorder:
        for text in ("a", "b"):
            await chunk(recorder, "1", text)
        await recorder.add("output_stdout", 1.0, {"line": "between"})
        for text in ("c", "d"):
            await chunk(recorder, "1", text)
    events = [payload.get("chunk") or payload["line"] for _, payload in await found(rows, run)]
    assert "".join(events) == "abbetweencd"


async def test_the_arguments_of_a_tool_are_joined_apart_from_text(rows: Rows) -> None:
    run = await rows.started()
    async with recording(rows, run, event_limit=500) as recorder:
        await chunk(recorder, "1", "thinking")
        for text in ('{"q":', '"tides"}'):
            tool = {"index": 0, "function": {"name": "search", "arguments": text}}
            await chunk(recorder, "1", text, tool_call=tool)
    events = [payload for _, payload in await found(rows, run)]
    tools = [one["tool_call"]["function"] for one in events if "tool_call" in one]
    assert "".join(one["arguments"] for one in tools) == '{"q":"tides"}'
    assert {one["name"] for one in tools} == {"search"}
    assert "".join(one["chunk"] for one in events if "tool_call" not in one) == "thinking"


async def test_tasks_and_the_end_are_stored_beyond_the_limit(rows: Rows) -> None:
    run = await rows.started()
    async with recording(rows, run, event_limit=5) as recorder:
        for number in range(9):
            await recorder.add("output_stdout", 1.0, {"line": str(number)})
        for kind in ("task_completed", "task_started", "task_completed", "crew_kickoff_completed"):
            await recorder.add(kind, 1.0, {})
        assert [one.code for one in recorder.take_warnings()] == ["events_cut"]
    kinds = [kind for kind, _ in await found(rows, run)]
    assert kinds[:5] == ["output_stdout"] * 5
    assert kinds[5:] == ["task_completed", "task_started", "task_completed", "crew_kickoff_completed"]


async def test_chunks_have_a_bound_of_their_own_over_all_attempts(rows: Rows) -> None:
    run = await rows.started()
    for _ in range(2):
        async with recording(rows, run, event_limit=3) as recorder:
            for call in range(5):
                await chunk(recorder, str(call), "text")
            await recorder.add("output_stdout", 1.0, {"line": "printed"})
            assert [one.code for one in recorder.take_warnings()] == ["chunks_cut"]
        await rows.requeue(run)
        await rows.come_due()
        (run,) = await rows.claim()
    kinds = [kind for kind, _ in await found(rows, run)]
    assert (kinds.count(CHUNK), kinds.count("output_stdout")) == (3, 2)

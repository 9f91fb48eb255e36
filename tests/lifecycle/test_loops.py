from __future__ import annotations

import asyncio
from typing import Never

import pytest

from windlass.aio import serving, shielded
from windlass.errors import DatabaseUnavailable
from windlass.lifecycle.background_tasks import BackgroundTasks, until_the_database_answers

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.lifecycle.background_tasks.BETWEEN_ATTEMPTS", 0.001)


class Turns:
    """A step that counts its turns, and does in each what it was given for it."""

    def __init__(self, *ends: Exception | None) -> None:
        self._ends = list(ends)
        self.done = 0
        self.enough = asyncio.Event()

    async def step(self) -> None:
        self.done += 1
        if not self._ends:
            self.enough.set()
            await asyncio.sleep(60)
        if end := self._ends.pop(0):
            raise end


async def test_a_step_is_done_again_and_again() -> None:
    turns = Turns(None, None, None)
    async with serving(BackgroundTasks(turns.step)) as loops:
        await asyncio.wait_for(turns.enough.wait(), 60)
        ran = loops.running
    assert (ran, loops.running, turns.done) == (True, False, 4)


async def test_what_one_turn_raises_is_logged_and_the_loop_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    turns, other = Turns(LookupError("a mistake"), None), Turns(None)
    async with serving(BackgroundTasks(turns.step, other.step)):
        await asyncio.wait_for(turns.enough.wait(), 60)
        await asyncio.wait_for(other.enough.wait(), 60)
    assert [record.message for record in caplog.records] == ["worker.loop_failed"]
    assert "a mistake" in caplog.text


async def test_a_database_that_is_away_is_no_failure_of_a_loop(caplog: pytest.LogCaptureFixture) -> None:
    turns = Turns(DatabaseUnavailable("away"), DatabaseUnavailable("away"))
    async with serving(BackgroundTasks(turns.step)):
        await asyncio.wait_for(turns.enough.wait(), 60)
    assert caplog.records == []


async def test_loops_may_be_stopped_twice_and_before_they_are_started() -> None:
    loops = BackgroundTasks(Turns().step)
    await loops.stop()
    await loops.start()
    await loops.start()
    await loops.stop()
    await loops.stop()


async def test_what_needs_the_database_is_tried_until_it_is_there() -> None:
    turns = Turns(DatabaseUnavailable("away"), DatabaseUnavailable("away"), None)
    await asyncio.wait_for(until_the_database_answers(turns.step), 60)
    assert turns.done == 3


async def test_another_error_is_raised_at_once() -> None:
    turns = Turns(LookupError("a mistake"), None)
    with pytest.raises(LookupError):
        await until_the_database_answers(turns.step)


class Half:
    """It can't be started as a whole."""

    def __init__(self) -> None:
        self.stopped = False

    async def start(self) -> Never:
        raise LookupError

    async def stop(self) -> None:
        self.stopped = True


async def test_a_part_that_starts_half_way_is_stopped() -> None:
    half = Half()
    with pytest.raises(LookupError):
        async with serving(half):
            pass
    assert half.stopped


async def test_what_must_be_seen_through_is_though_its_caller_is_cancelled() -> None:
    began, may_end, ended = asyncio.Event(), asyncio.Event(), False

    async def work() -> None:
        nonlocal ended
        began.set()
        await may_end.wait()
        ended = True

    caller = asyncio.create_task(shielded(work()))
    await began.wait()
    for _ in range(2):  # a second cancellation does not end the work either
        caller.cancel()
        await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended


async def test_what_is_seen_through_gives_its_answer_or_its_error() -> None:
    async def answer() -> int:
        return 42

    async def fail() -> int:
        raise LookupError

    assert await shielded(answer()) == 42
    with pytest.raises(LookupError):
        await shielded(fail())


async def test_work_that_fails_after_a_cancellation_raises_the_cancellation() -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        began.set()
        await may_end.wait()
        raise LookupError

    caller = asyncio.create_task(shielded(fail()))
    await began.wait()
    caller.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from patience import DEADLINE
from projects_for_tests.able import able
from projects_for_tests.ends import alive, gone, zygotes
from projects_for_tests.making import PYTHON, Bench, Heard, function_project
from windlass.errors import WindlassError
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.states import Reason, State
from windlass.projects import recognise
from windlass.runner import LeaseHandle, Preparing, RunSpec, Terminator, boottime
from windlass.runner.io import frame_of
from windlass.runner.run_spec import message_of
from windlass_child.protocol import frames
from windlass_child.protocol.messages import (
    JournalCommitted,
    JournalReplay,
    Lease,
    ProcessEnvironment,
    Project,
    TaskStarted,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

WORDS = "the lease ended before it was renewed."
FIRST, RENEWED = 3.0, 600.0


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return able(tmp_path / "project")


@pytest.fixture
async def warm(bench: Bench, project: Path) -> Bench:
    """One that has its zygote, so that a lease is not over before it is there."""
    await bench.run(project)
    return bench


def begin(bench: Bench, project: Path, lease_handle: LeaseHandle, heard: Heard, **order: Any) -> asyncio.Task[Any]:
    ordered = replace(bench.order(recognise(project), order.pop("inputs"), {}), **order)
    return asyncio.create_task(bench.runner.run(ordered, heard.report, Terminator(), lease_handle))


async def until_second(second: float) -> None:
    while boottime() < second:  # noqa: ASYNC110 - a clock tells nobody
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("deed", ["sleep", "ignore", "block_in_c", "talk"])
async def test_a_run_whose_lease_ends_is_lost_with_all_its_processes(warm: Bench, project: Path, deed: str) -> None:
    heard = Heard()
    run = begin(warm, project, LeaseHandle(), heard, inputs={"do": deed}, lease=boottime() + FIRST)
    pids = await heard.pids()
    outcome = await run
    assert (outcome.state, outcome.reason, outcome.error) == (State.FAILED, Reason.LOST, WORDS)
    await gone(*pids)


async def test_where_no_process_can_end_itself_the_worker_does(
    warm: Bench, project: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.runner.zygote.STOP_SECONDS", 0.2)
    heard = Heard()
    run = begin(warm, project, LeaseHandle(), heard, inputs={"do": "block_in_c"}, lease=boottime() + FIRST)
    (pid,) = await heard.pids()
    (zygote,) = zygotes(scratch)
    zygote.suspend()
    assert (await asyncio.wait_for(run, DEADLINE)).error == WORDS
    await gone(pid, zygote.pid)


async def test_renewals_keep_a_run_alive(warm: Bench, project: Path) -> None:
    heard, lease_handle = Heard(), LeaseHandle()
    first = boottime() + FIRST
    run = begin(warm, project, lease_handle, heard, inputs={"do": "sleep"}, lease=first)
    pids = await heard.pids()
    lease_handle.extend(first + 1)
    lease_handle.extend(first + RENEWED)
    await until_second(first + 1.5)
    assert all(map(alive, pids))
    assert not run.done()
    run.cancel()
    await asyncio.wait([run])


async def test_a_run_that_never_takes_what_it_is_told_is_entries_alive_and_holds_nobody_up(
    warm: Bench, project: Path
) -> None:
    heard, lease_handle = Heard(), LeaseHandle()
    first = boottime() + FIRST
    run = begin(warm, project, lease_handle, heard, inputs={"do": "block_in_c"}, lease=first)
    (pid,) = await heard.pids()
    for number in range(1, 2000):  # more than its socket takes
        lease_handle.written(number)
    await asyncio.sleep(0)
    lease_handle.extend(first + RENEWED)
    assert (await warm.run(project)).state is State.SUCCESS
    await until_second(first + 1)
    assert alive(pid)
    run.cancel()
    await asyncio.wait([run])
    await gone(pid)


async def test_a_run_whose_lease_has_ended_never_starts(bench: Bench, project: Path) -> None:
    heard = Heard()
    outcome = await begin(bench, project, LeaseHandle(), heard, inputs={"do": "talk"}, lease=boottime())
    assert (outcome.reason, outcome.error) == (Reason.LOST, WORDS)
    assert heard.lines("stdout") == []


async def test_a_renewal_while_the_zygote_starts_counts(bench: Bench, project: Path) -> None:
    heard, lease_handle = Heard(), LeaseHandle()
    first = boottime() + 30
    run = begin(bench, project, lease_handle, heard, inputs={"do": "sleep"}, lease=first)
    await heard.until(lambda one: one == Preparing("zygote"))
    lease_handle.extend(first + RENEWED)
    await heard.pids()
    assert lease_handle.until == first + RENEWED
    run.cancel()
    await asyncio.wait([run])


async def test_a_result_that_was_read_before_the_lease_ended_is_entries(warm: Bench, project: Path) -> None:
    outcome = await begin(warm, project, LeaseHandle(), Heard(), inputs={"do": "echo"}, lease=boottime() + 60)
    assert outcome.state is State.SUCCESS


async def test_nothing_is_reported_once_the_lease_has_ended(warm: Bench, project: Path) -> None:
    """The worker stands still meanwhile, and the run has told much that waits to be read."""
    heard, lease_handle = Heard(), LeaseHandle()
    run = begin(warm, project, lease_handle, heard, inputs={"do": "talk"}, lease=boottime() + FIRST)
    await heard.pids()
    assert lease_handle.until is not None
    while not lease_handle.lapsed:
        time.sleep(0.05)  # noqa: ASYNC251 - the whole loop stands still
    before = len(heard.all)
    assert (await run).reason is Reason.LOST
    assert len(heard.all) == before


async def test_not_even_a_result_that_was_not_read_by_then(warm: Bench, project: Path) -> None:
    heard, lease_handle = Heard(), LeaseHandle()
    inputs = {"do": "allocate_in_forks", "megabytes": 1, "forks": 0, "seconds": 0.3}
    run = begin(warm, project, lease_handle, heard, inputs=inputs, lease=boottime() + FIRST)
    await heard.until(lambda one: isinstance(one, TaskStarted))
    while not lease_handle.lapsed:
        time.sleep(0.05)  # noqa: ASYNC251 - the whole loop stands still
    assert (await run).error == WORDS


async def test_a_run_that_its_zygote_ended_for_its_lease_is_lost(warm: Bench, project: Path) -> None:
    heard = Heard()
    run = begin(warm, project, LeaseHandle(), heard, inputs={"do": "sleep"}, lease=boottime() + RENEWED)
    await heard.pids()
    (kept,) = warm.runner._zygotes._entries.values()
    zygote = kept.starting.result()
    (name,) = zygote._children
    zygote.lease(name, boottime())  # as one that was told too late of a renewal has it
    assert (await run).error == WORDS


async def test_a_tether_tells_all_that_is_written_and_of_renewals_the_last() -> None:
    lease_handle, now = LeaseHandle(), boottime()
    lease_handle.begin(now + 10)
    lease_handle.begin(now + 5)
    for news in (lease_handle.extend, lease_handle.extend):
        news(now + 20)
    lease_handle.written(1)
    lease_handle.extend(now + 30)
    lease_handle.written(2)
    assert await lease_handle.news() == [JournalCommitted(1), JournalCommitted(2), Lease(now + 30)]
    lease_handle.written(3)
    assert await lease_handle.news() == [JournalCommitted(3)]


def test_a_lease_that_has_ended_is_not_had_again() -> None:
    lease_handle = LeaseHandle(boottime())
    lease_handle.extend(boottime() + RENEWED)
    assert lease_handle.lapsed


def test_a_run_without_a_lease_has_no_end_of_one() -> None:
    assert not LeaseHandle().lapsed


async def test_what_is_written_is_told_to_the_run(warm: Bench, tmp_path: Path) -> None:
    code = """
    import threading
    from windlass_child.process import child

    def run():
        told = threading.Event()

        def heard(inbox, message):
            print(type(message).__name__, getattr(message, "number", None), flush=True)
            if getattr(message, "number", None) == 2:
                told.set()

        child.Inbox.put = heard
        print("asleep", 0, flush=True)
        return told.wait(30)
    """
    heard, lease_handle = Heard(), LeaseHandle()
    run = begin(warm, function_project(tmp_path / "hears", code), lease_handle, heard, inputs={})
    await heard.pids()
    lease_handle.written(1)
    lease_handle.written(2)
    outcome = await run
    assert outcome.json is True
    assert heard.lines("stdout")[1:] == ["JournalCommitted 1", "JournalCommitted 2"]


async def test_a_journal_of_many_megabytes_is_given_while_others_go_on(warm: Bench, project: Path) -> None:
    megabyte = "x" * (1 << 20)

    async def journal() -> AsyncIterator[list[JournalReplay]]:
        yield [JournalReplay(number, "step", "{}", megabyte) for number in range(1, 21)]
        yield [JournalReplay(number, "step", "{}") for number in range(21, 1021)]

    run = begin(warm, project, LeaseHandle(), Heard(), inputs={"do": "echo"}, journal=journal)
    longest = 0.0
    while not run.done():
        began = time.thread_time()  # the time of this thread alone: a busy machine adds nothing to it
        await asyncio.sleep(0.001)
        longest = max(longest, time.thread_time() - began)
    assert (await run).state is State.SUCCESS
    assert longest < 1, "for how long the loop was held"


def test_an_entry_that_no_message_can_hold_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "LARGEST_FRAME", 1000)
    with pytest.raises(WindlassError, match="the journal entry of some step can't be sent to the crew"):
        frame_of(JournalReplay(1, "some step", "{}", "x" * 1000))


def test_what_earlier_attempts_used_counts_against_the_limits(tmp_path: Path) -> None:
    project = Project("function", str(tmp_path), "work:run")
    limits = Limits(token_limit=100, model_call_limit=10)
    order = RunSpec("k", 2, PYTHON, None, project, {}, {}, limits, tokens_used=60, model_calls_made=4)
    budget = message_of(order, ProcessEnvironment({}, str(tmp_path))).budget
    assert (budget.token_limit, budget.tokens_used) == (100, 60)
    assert (budget.model_call_limit, budget.model_calls_made) == (10, 4)

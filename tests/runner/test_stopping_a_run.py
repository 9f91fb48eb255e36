from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.able import able
from projects_for_tests.ends import gone
from projects_for_tests.making import Bench, Heard, running_bench
from windlass.kickoffs.outcome import Termination
from windlass.kickoffs.states import Reason, State
from windlass.projects import recognise
from windlass.runner import Output, Preparing, RunnerConfig, Terminator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

STOPPED = Termination(State.CANCELLED, Reason.CANCELLED, "It was stopped.")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return able(tmp_path / "project")


@pytest.fixture
async def hasty(scratch: Path) -> AsyncIterator[Bench]:
    """A bench whose runs have half a second to end."""
    async with running_bench(scratch, RunnerConfig(grace=0.5)) as bench:
        yield bench


@pytest.mark.parametrize("deed", ["sleep", "ignore", "clean_up", "block_in_c", "talk"])
async def test_a_run_that_is_stopped_ends_with_all_its_processes(hasty: Bench, project: Path, deed: str) -> None:
    heard, terminator = Heard(), Terminator()
    run = asyncio.create_task(hasty.run(project, {"do": deed}, heard=heard, terminator=terminator))
    pids = await heard.pids()
    terminator.end(STOPPED)
    outcome = await asyncio.wait_for(run, 60)
    assert (outcome.state, outcome.reason, outcome.error) == (State.CANCELLED, Reason.CANCELLED, "It was stopped.")
    await gone(*pids)


async def test_a_run_is_told_to_end_before_it_is_killed(hasty: Bench, project: Path) -> None:
    heard, terminator = Heard(), Terminator()
    run = asyncio.create_task(hasty.run(project, {"do": "clean_up"}, heard=heard, terminator=terminator))
    await heard.pids()
    terminator.end(STOPPED)
    await run
    assert "told to end" in heard.lines("stdout")


async def test_a_result_that_comes_after_the_request_to_stop_is_kept_and_the_run_is_cancelled(
    hasty: Bench, project: Path
) -> None:
    heard, terminator = Heard(), Terminator()
    run = asyncio.create_task(hasty.run(project, {"do": "succeed_at_last"}, heard=heard, terminator=terminator))
    await heard.pids()
    terminator.end(STOPPED)
    outcome = await run
    assert (outcome.state, outcome.reason, outcome.error) == (State.CANCELLED, Reason.CANCELLED, "It was stopped.")
    assert outcome.output == "done after all"


async def test_a_result_that_comes_within_the_grace_time_of_a_timeout_counts(hasty: Bench, project: Path) -> None:
    heard, terminator = Heard(), Terminator()
    run = asyncio.create_task(hasty.run(project, {"do": "succeed_at_last"}, heard=heard, terminator=terminator))
    await heard.pids()
    terminator.end(Termination(State.TIMED_OUT, Reason.TIMED_OUT, "It took too long."))
    outcome = await run
    assert (outcome.state, outcome.output) == (State.SUCCESS, "done after all")


async def test_a_run_that_was_stopped_before_it_began_never_starts(bench: Bench, project: Path) -> None:
    heard, terminator = Heard(), Terminator()
    terminator.end(STOPPED)
    outcome = await bench.run(project, {"do": "talk"}, heard=heard, terminator=terminator)
    assert outcome.state is State.CANCELLED
    assert heard.all == []


async def test_a_run_that_is_stopped_while_its_zygote_starts_never_starts(bench: Bench, project: Path) -> None:
    heard, terminator = Heard(), Terminator()
    run = asyncio.create_task(bench.run(project, {"do": "talk"}, heard=heard, terminator=terminator))
    await heard.until(lambda one: one == Preparing("zygote"))
    terminator.end(STOPPED)
    assert (await run).state is State.CANCELLED
    assert heard.lines("stdout") == []
    assert (await bench.run(project)).state is State.SUCCESS  # the zygote itself was not harmed


async def test_a_stop_is_not_held_up_by_output_that_nobody_takes(hasty: Bench, project: Path) -> None:
    terminator, held, begun = Terminator(), asyncio.Event(), asyncio.Event()
    printed: list[int] = []

    async def take_nothing(what: object) -> None:
        if isinstance(what, Output):
            printed.extend(int(word) for word in what.line.split()[1:2] if word.isdecimal())
            begun.set()
            await held.wait()

    order = hasty.order(recognise(project), {"do": "talk"}, {})
    run = asyncio.create_task(hasty.runner.run(order, take_nothing, terminator))
    await begun.wait()
    terminator.end(STOPPED)
    await gone(*printed)  # while what it wrote still waits to be taken
    assert not run.done()
    held.set()
    assert (await run).state is State.CANCELLED


async def test_the_first_reason_to_end_is_the_one_that_counts(hasty: Bench, project: Path) -> None:
    heard, terminator = Heard(), Terminator()
    run = asyncio.create_task(hasty.run(project, {"do": "sleep"}, heard=heard, terminator=terminator))
    await heard.pids()
    terminator.end(STOPPED)
    terminator.end(Termination(State.TIMED_OUT, Reason.TIMED_OUT, "It took too long."))
    assert (await run).state is State.CANCELLED

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.able import able
from projects_for_tests.making import Bench, Heard
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.outcome import Termination
from windlass.kickoffs.states import Reason, State
from windlass.projects import recognise
from windlass.runner import Output, Preparing, ResultSent, Terminator
from windlass_child.protocol.messages import Event, Message, Warned

if TYPE_CHECKING:
    from pathlib import Path

STOPPED = Termination(State.CANCELLED, Reason.CANCELLED, "It was stopped.", at_once=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return able(tmp_path / "project")


@pytest.mark.parametrize(("deed", "place"), [("sleep", "do_sleep"), ("block_in_c", "do_block_in_c")])
async def test_a_silent_run_is_told_of_with_where_it_stands(bench: Bench, project: Path, deed: str, place: str) -> None:
    heard, terminator = Heard(), Terminator()
    run = asyncio.create_task(
        bench.run(project, {"do": deed}, heard=heard, terminator=terminator, limits=Limits(stall_after=0.5))
    )
    told = await heard.until(lambda one: isinstance(one, Event) and one.type == "stalled")
    assert place in told.payload["stacks"]
    warned = await heard.until(lambda one: isinstance(one, Warned))
    assert warned.code == "stalled"
    assert not run.done()
    terminator.end(STOPPED)
    await run


async def test_a_run_that_talks_is_not_stalled(bench: Bench, project: Path) -> None:
    heard, terminator = Heard(), Terminator()
    run = asyncio.create_task(
        bench.run(project, {"do": "talk"}, heard=heard, terminator=terminator, limits=Limits(stall_after=0.6))
    )
    await heard.until(lambda one: len(heard.lines("stdout")) > 60)
    assert heard.events("stalled") == []
    terminator.end(STOPPED)
    await run


async def test_a_silence_is_told_once(bench: Bench, project: Path) -> None:
    heard, terminator = Heard(), Terminator()
    limits = Limits(stall_after=0.3, timeout=2)
    await bench.run(project, {"do": "sleep"}, heard=heard, terminator=terminator, limits=limits, seconds_left=2.0)
    assert len(heard.events("stalled")) == 1


async def test_a_run_whose_words_wait_to_be_written_is_not_silent(bench: Bench, project: Path) -> None:
    heard, written = Heard(), asyncio.Event()

    async def report(message: Message | Output | Preparing | ResultSent) -> None:
        await heard.report(message)
        if isinstance(message, Output):
            await written.wait()

    order = replace(bench.order(recognise(project), {"do": "print", "lines": 1}, {}), limits=Limits(stall_after=0.2))
    run = asyncio.create_task(bench.runner.run(order, report))
    await heard.until(lambda one: isinstance(one, Output))
    watching = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < watching + 1:
        await bench.run(project)  # others go on meanwhile
    written.set()
    assert (await run).output == "printed"
    assert heard.events("stalled") == []

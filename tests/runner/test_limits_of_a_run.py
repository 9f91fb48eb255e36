from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.able import able
from projects_for_tests.ends import gone, zygotes
from projects_for_tests.making import Bench, Heard
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.states import Reason, State
from windlass_child.protocol.messages import Warned

if TYPE_CHECKING:
    from pathlib import Path

MB = 1 << 20


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return able(tmp_path / "project")


async def test_a_run_over_its_memory_limit_is_ended_and_told_by_how_much(bench: Bench, project: Path) -> None:
    outcome = await bench.run(project, {"do": "allocate", "megabytes": 300}, limits=Limits(memory_limit=200 * MB))
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.LIMIT)
    assert "of memory, more than its memory_limit of 200 MB. Raise memory_limit" in str(outcome.error)


async def test_the_memory_of_programs_that_a_run_starts_counts(bench: Bench, project: Path) -> None:
    inputs = {"do": "allocate_below", "megabytes": 300}
    outcome = await bench.run(project, inputs, limits=Limits(memory_limit=200 * MB))
    assert outcome.reason is Reason.LIMIT
    assert "memory_limit" in str(outcome.error)


async def test_memory_that_processes_share_counts_once(bench: Bench, project: Path) -> None:
    inputs = {"do": "allocate_in_forks", "megabytes": 60, "forks": 5, "seconds": 1.5}
    outcome = await bench.run(project, inputs, limits=Limits(memory_limit=250 * MB))
    assert outcome.output == "shared"


async def test_a_run_below_its_limits_does_not_notice_them(bench: Bench, project: Path) -> None:
    limits = Limits(timeout=60, memory_limit=500 * MB, process_limit=10, output_limit=MB, stall_after=60)
    outcome = await bench.run(project, {"do": "print", "lines": 3}, limits=limits, seconds_left=60.0)
    assert outcome.output == "printed"


async def test_a_run_with_too_many_processes_is_ended_with_all_of_them(bench: Bench, project: Path) -> None:
    inputs = {"do": "start_processes", "count": 20}
    outcome = await bench.run(project, inputs, limits=Limits(process_limit=5))
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.LIMIT)
    assert "its process_limit is 5. Raise process_limit" in str(outcome.error)


async def test_a_fork_bomb_is_ended_to_its_last_process(bench: Bench, project: Path, scratch: Path) -> None:
    outcome = await bench.run(project, {"do": "bomb"}, limits=Limits(process_limit=30))
    assert outcome.reason is Reason.LIMIT
    assert not working_in(scratch)
    assert (await bench.run(project)).state is State.SUCCESS


async def test_a_run_that_takes_too_long_is_timed_out(bench: Bench, project: Path) -> None:
    await bench.run(project)  # what is left of its time is not for the start of a zygote
    heard = Heard()
    run = asyncio.create_task(
        bench.run(project, {"do": "sleep"}, heard=heard, limits=Limits(timeout=7), seconds_left=2.0)
    )
    pids = await heard.pids()
    outcome = await run
    assert (outcome.state, outcome.reason) == (State.TIMED_OUT, Reason.TIMED_OUT)
    assert "longer than its timeout of 7 s" in str(outcome.error)
    await gone(*pids)


async def test_output_beyond_its_limit_is_dropped_and_the_run_goes_on(bench: Bench, project: Path) -> None:
    heard = Heard()
    inputs = {"do": "print", "lines": 5000}
    outcome = await bench.run(project, inputs, heard=heard, limits=Limits(output_limit=1000))
    assert outcome.output == "printed"
    assert 100 < len(heard.lines("stdout")) < 200
    (warned,) = heard.of(Warned)
    assert warned.code == "output_cut"
    assert "after the first 1000 bytes (output_limit) was dropped" in warned.message


async def test_a_flood_of_output_holds_up_neither_its_run_nor_others(
    bench: Bench, project: Path, tmp_path: Path
) -> None:
    heard, enough = Heard(), tmp_path / "enough"
    inputs = {"do": "flood", "seconds": 60.0, "until": str(enough), "least": 8 * MB}
    flood = asyncio.create_task(bench.run(project, inputs, heard=heard, limits=Limits(output_limit=MB)))
    await heard.until(lambda one: True)
    assert (await bench.run(project)).state is State.SUCCESS
    assert not flood.done()
    enough.touch()
    assert (await flood).output == "flooded"
    (warned,) = heard.of(Warned)
    assert "GB" in warned.message or "MB" in warned.message


def working_in(folder: Path) -> list[int]:
    """Processes of runs below the zygotes of the runner with this folder."""
    return [child.pid for zygote in zygotes(folder) for child in zygote.children(recursive=True)]

"""A run that fills the disk or the database, while another run goes on."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from lifecycle.running import World
from projects_for_tests.making import Bench, function_project, running_bench
from store.whole import loaded
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.states import Reason, State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from windlass.store.reading import KickoffStatus

MB = 1 << 20
CODE = """
import os, time


def run(do="echo", **inputs):
    return globals()["do_" + do](inputs)


def do_echo(inputs):
    return "echo"


def do_write(inputs):
    os.makedirs("a/b")
    for number in range(inputs["files"]):
        with open(f"a/b/{number}", "wb") as file:
            file.write(b"x" * inputs["size"])
    time.sleep(inputs.get("then", 600))
    return "written"


def do_sparse(inputs):
    with open("sparse", "wb") as file:
        file.truncate(1 << 40)
    with open("one", "wb") as file:
        file.write(b"x" * (1 << 20))
    for number in range(50):
        os.link("one", f"name {number}")
    os.symlink("/", "everything")
    time.sleep(2.5)
    return "small"


def do_nest(inputs):
    for _ in range(500):
        os.mkdir("d")
        os.chdir("d")
    time.sleep(600)


def do_print(inputs):
    for number in range(inputs["lines"]):
        print("x" * inputs.get("width", 1))
    time.sleep(inputs.get("then", 0))
    return "printed"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return function_project(tmp_path / "project", CODE)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running_bench(tmp_path / "scratch") as bench:
        yield bench


@pytest.fixture
async def world(emptied_url: str, tmp_path: Path) -> AsyncIterator[World]:
    world = World(emptied_url, tmp_path, AsyncExitStack())
    world.project.joinpath("work.py").write_text(CODE)
    async with world:
        yield world


async def test_a_run_that_writes_more_than_its_disk_limit_is_ended(bench: Bench, project: Path) -> None:
    inputs = {"do": "write", "files": 60, "size": MB}
    outcome = await bench.run(project, inputs, limits=Limits(disk_limit=20 * MB))
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.LIMIT)
    assert "of disk space in its folder, more than its disk_limit of 20 MB" in str(outcome.error)


async def test_a_run_that_makes_files_without_end_is_ended_while_others_run(bench: Bench, project: Path) -> None:
    inputs = {"do": "write", "files": 10**9, "size": 0}
    flood = asyncio.create_task(bench.run(project, inputs, limits=Limits(file_limit=2000)))
    assert (await bench.run(project)).output == "echo"
    outcome = await flood
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.LIMIT)
    assert "more than 2000 files in its folder, its file_limit" in str(outcome.error)


async def test_a_run_that_nests_folders_without_end_is_ended(bench: Bench, project: Path) -> None:
    outcome = await bench.run(project, {"do": "nest"}, limits=Limits(disk_limit=MB * 1000))
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.LIMIT)
    assert "levels of folders" in str(outcome.error)


async def test_sparse_files_hard_links_and_symbolic_links_do_not_count_for_more_than_they_take(
    bench: Bench, project: Path
) -> None:
    outcome = await bench.run(project, {"do": "sparse"}, limits=Limits(disk_limit=5 * MB, file_limit=100))
    assert outcome.output == "small"


async def test_events_beyond_the_limit_are_dropped_and_the_run_goes_on(world: World) -> None:
    ended = await run_in(world, Limits(event_limit=50), {"do": "print", "lines": 3000})
    assert ended.state is State.SUCCESS
    assert len(await world.events(ended.id)) == 50
    (warning,) = loaded(ended.warnings)
    assert warning["code"] == "events_cut"
    assert "The kickoff has 50 events, its event_limit" in warning["message"]


async def test_a_run_that_stores_more_than_its_limit_is_ended(world: World) -> None:
    inputs = {"do": "print", "lines": 100_000, "width": 1000, "then": 600}
    ended = await run_in(world, Limits(stored_limit=MB), inputs)
    assert (ended.state, ended.reason) == (State.FAILED, "limit")
    assert "more than its stored_limit of 1 MB" in str(ended.error)
    stored = await world.store.stored_so_far(ended.id)
    assert stored.last_event < 2000


async def run_in(world: World, limits: Limits, inputs: dict[str, Any]) -> KickoffStatus:
    await world.worker(limits=limits)
    return await world.ended(await world.accept(**inputs))

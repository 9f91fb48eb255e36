"""Runs that start processes without end, as quickly as they can."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from projects_for_tests.making import function_project, running_bench
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.states import Reason, State
from windlass.runner.processes import Families, all_processes, end_family
from windlass.runner.resource_monitor import WatchedRun, measured
from windlass.runner.run_context import Terminator
from windlass.runner.shared_memory import SharedMemory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from projects_for_tests.making import Bench

MOST = 300
"""The bomb starts few more, so that this machine outlives it."""
LIMIT = 30
CODE = f"""
import os, time

def run(count=None):
    if count is None:
        time.sleep(1)
        return "done"
    started = os.open(count, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if os.fstat(started).st_size >= {MOST}:
            time.sleep(0.1)
        elif os.fork() == 0:
            os.setsid()
            os.write(started, b"x")
"""


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running_bench(tmp_path / "scratch") as bench:
        yield bench


def test_all_processes_of_a_run_are_stopped_when_they_are_counted() -> None:
    code = "import os, time\nfor _ in range(3): os.fork()\nprint(flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as bomb:
        try:
            assert bomb.stdout is not None
            for _ in range(8):
                bomb.stdout.readline()
            watched = WatchedRun(bomb.pid, Limits(process_limit=3), Terminator())
            (termination,) = measured([watched], SharedMemory())
            assert termination is not None
            assert "the run had 8 processes; its process_limit is 3." in termination.error
            left = Families(all_processes()).of(bomb.pid)
            assert [one.state for one in left] == ["T"] * 8, "a stopped process starts no other one"
        finally:
            end_family(Families(all_processes()).of(bomb.pid), None)


async def test_a_fork_bomb_ends_to_its_last_process_and_other_runs_go_on(bench: Bench, tmp_path: Path) -> None:
    project, count = function_project(tmp_path / "project", CODE), tmp_path / "count"
    assert (await bench.run(project)).state is State.SUCCESS
    other = asyncio.create_task(bench.run(project))
    outcome = await bench.run(project, {"count": str(count)}, limits=Limits(process_limit=LIMIT))
    assert outcome.reason is Reason.LIMIT
    assert f"its process_limit is {LIMIT}. Raise process_limit" in str(outcome.error)
    assert bombs(tmp_path) == []
    assert (await other).output == "done"
    assert (await bench.run(project)).state is State.SUCCESS


def bombs(folder: Path) -> list[int]:
    """The processes that hold the count open."""
    found = []
    for one in psutil.process_iter():
        try:
            if any(file.path == str(folder / "count") for file in one.open_files()):
                found.append(one.pid)
        except psutil.Error:
            continue
    return found

"""Runs that start processes without end, as quickly as they can."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from projects_for_tests.ends import gone
from projects_for_tests.making import DEADLINE, Heard, function_project, running_bench
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.states import Reason, State
from windlass.runner import resource_monitor
from windlass.runner.processes import Families, all_processes, end_family
from windlass.runner.resource_monitor import WatchedRun, measured
from windlass.runner.run_context import Terminator
from windlass.runner.shared_memory import SharedMemory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
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
            wait_until(lambda: states_below(bomb.pid) == ["T"] * 8)
        finally:
            end_family(Families(all_processes()).of(bomb.pid), None)


def states_below(pid: int) -> list[str]:
    return [one.state for one in Families(all_processes()).of(pid)]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


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


ENDING = """
import os, subprocess, time

def run(place=None):
    if place is not None:
        helpers = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
        print("started", flush=True)
        while not os.path.exists(place):
            time.sleep(0.01)
        for helper in helpers:
            helper.kill()
            helper.wait()
    return os.getpid()
"""


class Held:
    """Holds the first call of a function of the monitor, which the monitor makes in its thread, while `on` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, *, after: bool) -> None:
        self.on, self._reached, self._go, self._through = (threading.Event() for _ in range(4))
        self._after = after
        self._called: Callable[..., Any] = getattr(resource_monitor, name)
        monkeypatch.setattr(resource_monitor, name, self)

    def __call__(self, *arguments: Any) -> Any:
        if not self.on.is_set() or self._reached.is_set():
            return self._called(*arguments)
        if not self._after:
            self._hold()
            found = self._called(*arguments)
            self._through.set()
            return found
        found = self._called(*arguments)
        self._hold()
        return found

    def _hold(self) -> None:
        self._reached.set()
        assert self._go.wait(DEADLINE)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, DEADLINE)

    def go_on(self) -> None:
        self._go.set()

    async def through(self) -> None:
        assert await asyncio.to_thread(self._through.wait, DEADLINE)


class Ending:
    """A run with `reuse` that has too many processes, until it ends by itself."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self._bench, self._end = bench, folder / "end"
        self._project = function_project(folder / "project", ENDING)

    async def run(self, **more: Any) -> int:
        """Returns the id of its process."""
        async with asyncio.timeout(DEADLINE):
            outcome = await self._bench.run(self._project, **{"reuse": 100, "version": "1", **more})
        assert outcome.state is State.SUCCESS, outcome.error
        return int(outcome.json)

    async def begun(self, held: Held) -> asyncio.Task[int]:
        heard, limits = Heard(), Limits(process_limit=2)
        running = asyncio.create_task(self.run(inputs={"place": str(self._end)}, heard=heard, limits=limits))
        await heard.until(lambda one: getattr(one, "line", "") == "started")
        held.on.set()
        await held.reached()
        return running

    async def ended(self, running: asyncio.Task[int]) -> int:
        self._end.touch()
        return await running


async def test_a_run_that_ended_before_it_was_to_be_stopped_leaves_a_process_for_the_next_one(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, ending = Held(monkeypatch, "Families", after=True), Ending(bench, tmp_path)
    await ending.run()
    pid = await ending.ended(await ending.begun(held))
    next_one = asyncio.create_task(ending.run())
    held.go_on()
    assert await next_one == pid, "the monitor stops nothing of a run that has ended"
    assert await ending.run() == pid


async def test_a_run_that_ended_while_it_was_to_be_stopped_leaves_no_process_for_the_next_one(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, ending = Held(monkeypatch, "stop_family", after=False), Ending(bench, tmp_path)
    await ending.run()
    pid = await ending.ended(await ending.begun(held))
    held.go_on()
    await held.through()
    assert await ending.run() != pid
    await gone(pid)


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

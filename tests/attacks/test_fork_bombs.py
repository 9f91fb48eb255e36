"""Runs that start processes without end, as quickly as they can."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest

from attacks.other_user import INTERPRETER, as_root
from attacks.server_health import watched
from cli.the_command import ForkedCommand
from patience import DEADLINE
from projects_for_tests.another_user import config_of
from projects_for_tests.ends import gone
from projects_for_tests.making import Heard, function_project, running_bench, written
from windlass.accounts import Account
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.states import Reason, State
from windlass.runner import resource_monitor
from windlass.runner.crew_account import UNNAMED
from windlass.runner.processes import Families, all_processes, end_family, tasks_of_user
from windlass.runner.resource_monitor import WatchedRun, measured
from windlass.runner.run_context import Terminator
from windlass.runner.run_spec import TaskBounds
from windlass.runner.shared_memory import SharedMemory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from projects_for_tests.making import Bench

MOST = 300
"""The bomb starts no more, so that this machine outlives it."""
LIMIT = 20
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
            continue
        os.write(started, b"x")  # before the fork: hundreds may be at this place
        if os.fstat(started).st_size > {MOST}:
            continue
        try:
            forked = os.fork() == 0
        except BlockingIOError:
            open(count + ".full", "w").close()
            time.sleep(0.1)
        else:
            if forked:
                os.setsid()
"""
WAITING = """
import os, threading, time

def run(place):
    while not os.path.exists(place):
        time.sleep(0.02)
    return "done"
"""
LONGEST_ANSWER = 5.0
"""Seconds until a server answers while a fork bomb runs. Each answer takes milliseconds on an idle machine."""


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
            run = WatchedRun(bomb.pid, Limits(process_limit=3), Terminator())
            (termination,) = measured([run], SharedMemory())
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


@as_root
async def test_the_kernel_bounds_a_fork_bomb_where_crews_have_a_user_of_their_own(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = UNNAMED - 3  # no other test runs crews as this user: its processes are counted together
    bounds = TaskBounds(2000, others=40, least=10)
    config = config_of(Account(own, own, "bounded", is_ours=False), tasks=bounds)
    shared = open_folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    held = Held(monkeypatch, "stop_family", after=False)
    held.on.set()
    bomb, other = function_project(open_folder / "bomb", CODE), function_project(open_folder / "other", WAITING)
    async with running_bench(open_folder / "scratch", config, INTERPRETER) as bench:
        before = asyncio.create_task(bench.run(other, {"place": str(shared / "count.full")}))
        inputs = {"count": str(shared / "count")}
        bombing = asyncio.create_task(bench.run(bomb, inputs, limits=Limits(process_limit=LIMIT)))
        await held.reached()
        await asyncio.to_thread(wait_until, (shared / "count.full").exists)
        assert LIMIT < tasks_of_user(own) <= 40 + 8 * LIMIT + 10, "of which 10 are zygotes, and the run before the bomb"
        assert (await before).state is State.SUCCESS
        after = await bench.run(other, {"place": str(shared / "count.full")}, limits=Limits(process_limit=LIMIT))
        assert (after.state, after.error) == (State.SUCCESS, None)
        held.go_on()
        assert (await bombing).reason is Reason.LIMIT
        assert bombs(shared) == []


@pytest.mark.parametrize(
    ("process_limit", "tasks"), [(1, 40 + 2048), (256, 40 + 2048), (300, 40 + 2400), (None, None)], ids=str
)
def test_a_run_has_room_for_threads_too(process_limit: int | None, tasks: int | None) -> None:
    assert TaskBounds(5000, others=40).of_run(process_limit) == tasks
    assert TaskBounds(5000).of_run(process_limit) is None


def test_a_server_answers_and_runs_other_crews_while_fork_bombs_run(open_folder: Path) -> None:
    header = '[project]\nname = "{}"\n[tool.windlass]\nentrypoint = "work:run"\n'
    shared = open_folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    projects = [
        str(written(open_folder / name, {"pyproject.toml": header.format(name), "work.py": code}))
        for name, code in (("bomb", CODE), ("other", WAITING))
    ]
    windlass = ForkedCommand(open_folder)
    settings = {"WINDLASS_PROCESS_LIMIT": str(LIMIT), "WINDLASS_SLOTS": "8", "WINDLASS_CREW_FILES": f"{shared}:rw"}
    with windlass.started("dev", *projects, "--port", "0", **settings) as server:
        server.wait_for("Ctrl-C stops it")
        shown = {one["deployment"]: one for one in json.loads(windlass("tokens", "show", "--json").out)}

        def begun(crew: str, **inputs: str) -> str:
            return str(asked(shown[crew], "POST", "/kickoff", json={"inputs": inputs}).json()["kickoff_id"])

        def ended(crew: str, kickoff: str) -> dict[str, Any]:
            deadline, found = time.monotonic() + 2 * DEADLINE, dict[str, Any]()
            while found.get("status") not in {"completed", "error"} and time.monotonic() < deadline:
                found = asked(shown[crew], "GET", f"/status/{kickoff}?wait=10").json()
            return found

        with watched(shown["bomb"]["base_url"].partition("/crews/")[0], server.process.pid) as health:
            before = begun("other", place=str(shared / "go"))
            places = [shared / f"count{number}" for number in range(3)]
            bombings = [begun("bomb", count=str(place)) for place in places]
            wait_until(places[0].exists)
            others = [ended("other", begun("other", place=str(places[0]))) for _ in range(3)]
            (shared / "go").touch()
            others.append(ended("other", before))
            assert [one["state"] for one in others] == ["SUCCESS"] * 4, [one.get("error") for one in others]
            assert [ended("bomb", one).get("reason") for one in bombings] == ["limit"] * 3
        assert health.longest < LONGEST_ANSWER
    assert all(place.stat().st_size > LIMIT for place in places)


def asked(crew: dict[str, str], method: str, path: str, **more: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {crew['organization_token']}"}
    answer = httpx.request(method, crew["base_url"] + path, headers=headers, timeout=DEADLINE, **more)
    assert answer.status_code == 200, answer.text
    return answer


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

"""Code of a crew in the process that forks its children names processes of others as its children."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.another_user import config_of
from projects_for_tests.ends import alive, gone
from projects_for_tests.making import Bench, Heard, function_project, running_bench
from windlass.kickoffs.states import Reason, State
from windlass.runner.crew_account import UNNAMED, crew_account
from windlass.runner.processes import ForeignProcess, Process, child_of, end_families, process, signal_to

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

OPEN_INTERPRETER = Path("/usr/bin/python3.11")

as_root = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux" or not OPEN_INTERPRETER.exists(),
    reason="needs root, and an interpreter that every user can reach",
)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

NAMES_ANOTHER = """
import os, signal

fork = os.fork

def name_another():
    child = fork()
    if child:
        signal.setitimer(signal.ITIMER_REAL, 0.5)  # SIGALRM ends the zygote: then the server ends its children
        return {pid}
    return child

os.fork = name_another

def run():
    return "ran"
"""

NAMES_NO_ONE = NAMES_ANOTHER.replace("{pid}", "(1 << 31) - 1").replace('return "ran"', "signal.pause()")

ENDS_ITS_ZYGOTE = """
import os, signal, subprocess, time

def run():
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print("asleep", os.getpid(), other.pid, flush=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    time.sleep(600)
"""


@pytest.fixture
async def bench(open_folder: Path) -> AsyncIterator[Bench]:
    async with running_bench(open_folder / "scratch", config_of(crew_account(None)), OPEN_INTERPRETER) as bench:
        yield bench


@pytest.fixture
def victim() -> Iterator[int]:
    """A process of root that leads a group of its own, as the server's database does."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def neighbour() -> Iterator[int]:
    """A process of the user of crews that belongs to no zygote."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True, user=UNNAMED, group=UNNAMED) as process:
        yield process.pid
        process.kill()


@as_root
@pytest.mark.parametrize("named", ["victim", "neighbour"])
async def test_a_zygote_can_not_make_the_server_kill_another_process(
    bench: Bench, open_folder: Path, named: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    pid: int = request.getfixturevalue(named)
    project = function_project(open_folder / "project", NAMES_ANOTHER.format(pid=pid))
    outcome = await bench.run(project, preload_project=True)
    await bench.runner.stop()
    assert alive(pid)
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.ERROR)
    assert f"reported a child that it did not start (process {pid}" in str(outcome.error)
    assert "zygote.refused" in caplog.text


@as_root
async def test_a_zygote_that_names_a_process_that_is_not_there_does_no_harm(bench: Bench, open_folder: Path) -> None:
    project = function_project(open_folder / "project", NAMES_NO_ONE)
    outcome = await bench.run(project, preload_project=True)
    assert outcome.reason is Reason.LOST


@as_root
async def test_a_run_whose_zygote_was_killed_leaves_nothing_behind(bench: Bench, open_folder: Path) -> None:
    heard = Heard()
    project = function_project(open_folder / "project", ENDS_ITS_ZYGOTE)

    async def kill_the_zygote() -> list[int]:
        child, other = await heard.pids()
        zygote = process(child)
        assert zygote is not None
        os.kill(child, signal.SIGSTOP)  # or it would end all of this itself
        os.kill(zygote.parent, signal.SIGKILL)
        return [child, other]

    killing = asyncio.create_task(kill_the_zygote())
    outcome = await bench.run(project, heard=heard, preload_project=True)
    assert outcome.reason is Reason.LOST
    await gone(*await killing)


@linux_only
def test_a_child_is_known_by_its_parent_and_its_user(victim: int) -> None:
    found = child_of(os.getpid(), victim, os.geteuid())
    assert (found.pid, found.parent) == (victim, os.getpid())
    with pytest.raises(ForeignProcess, match=f"is a child of process {os.getpid()}"):
        child_of(os.getppid(), victim, None)
    with pytest.raises(ForeignProcess, match=f"runs as the user {os.geteuid()}"):
        child_of(os.getpid(), victim, os.geteuid() + 1)


@linux_only
def test_a_process_is_killed_only_as_the_one_that_was_seen_and_of_its_user(victim: int) -> None:
    seen = process(victim)
    assert seen is not None
    former = Process(seen.pid, seen.parent, seen.state, seen.threads, seen.started - 1, seen.rss)
    end_families([(former, None)])
    signal_to(former, signal.SIGKILL, None)
    signal_to(seen, signal.SIGKILL, os.geteuid() + 1)
    signal_to(seen, signal.SIGTERM, os.geteuid())
    ended = os.waitid(os.P_PID, victim, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    assert ended.si_status == signal.SIGTERM, "no other signal was sent before"

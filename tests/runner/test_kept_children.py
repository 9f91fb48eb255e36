"""Children that wait for another run: how long they are kept, and what ends them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from patience import DEADLINE
from projects_for_tests.ends import alive, gone, kickoff_folders, zygotes
from projects_for_tests.making import Bench, Heard, function_project, running_bench
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.outcome import stopped
from windlass.kickoffs.states import Reason, State
from windlass.runner import RunnerConfig, Terminator
from windlass.runner.reuse.kept_children import IDLE_SECONDS
from windlass.runner.reuse.reusable_child import ReusableChild
from windlass_child.protocol.lease import boottime

CODE = """
import atexit, gc, os, time

held = []


class Later:
    # what it does when the run has ended and its process waits for another one

    def __init__(self, do, inbox):
        self.do, self.channel = do, inbox._channel

    def get(self):
        time.sleep(0.5)  # the run has ended by then, also on a busy machine
        if self.do == "print_later":
            os.write(1, b"later")
        if self.do == "send_later":
            os.write(self.channel.fileno(), b"later")
        if self.do == "fork_later" and os.fork() == 0:
            time.sleep(600)
        if self.do == "grow_later":
            held.append(bytearray(os.urandom(1 << 20) * 200))
        time.sleep(600)


def run(do="pid", place=None, megabytes=0):
    if do == "register":
        atexit.register(lambda: open(place, "w").close())
    if do == "hold":
        held.append(bytearray(os.urandom(1 << 20) * megabytes))
    if do == "wait":
        time.sleep(3)
    if do == "sleep":
        print("asleep", os.getpid(), flush=True)
        time.sleep(600)
    if do == "born":
        from windlass_child.process.inbox import Inbox
        from windlass_child.protocol.messages import Born
        (inbox,) = [one for one in gc.get_objects() if isinstance(one, Inbox)]
        for _ in range(100):
            inbox._channel.send(Born(True, True))
    if do in {"print_later", "send_later", "fork_later", "grow_later"}:
        from windlass_child.process.inbox import Inbox
        (inbox,) = [one for one in gc.get_objects() if isinstance(one, Inbox)]
        inbox.orders = Later(do, inbox)
    return os.getpid()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return function_project(tmp_path / "project", CODE)


async def run(bench: Bench, project: Path, inputs: dict[str, Any] | None = None, **more: Any) -> int:
    """Returns the id of the process."""
    outcome = await bench.run(project, inputs, **{"reuse": 100, "version": "1", **more})
    assert outcome.state is State.SUCCESS, outcome.error
    return int(outcome.json)


async def test_a_process_ends_after_its_last_run(bench: Bench, project: Path, scratch: Path) -> None:
    pids = [await run(bench, project, reuse=3) for _ in range(7)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]
    await gone(*dict.fromkeys(pids[:6]))
    assert kickoff_folders(scratch) == []


async def test_its_exit_handlers_run_when_it_ends(bench: Bench, project: Path, tmp_path: Path) -> None:
    place = tmp_path / "ended"
    pid = await run(bench, project, {"do": "register", "place": str(place)})
    assert not place.exists()
    assert await run(bench, project, reuse=2) == pid
    await gone(pid)
    assert place.exists()


async def test_a_process_that_is_idle_for_long_ends(
    bench: Bench, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.runner.reuse.kept_children.IDLE_SECONDS", 0.1)
    await gone(await run(bench, project))
    assert bench.runner.zygotes()[0] == 1


async def test_a_process_that_its_server_forgot_ends_with_its_lease(
    bench: Bench, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.runner.reuse.kept_children.END_SECONDS", 0.2)
    await gone(await run(bench, project))


async def test_the_lease_of_the_last_run_ends_no_process(bench: Bench, project: Path) -> None:
    end = boottime() + 4
    pid = await run(bench, project, lease=end)
    await asyncio.sleep(end + 0.2 - boottime())
    for lease in (None, boottime() + 60, None):
        assert await run(bench, project, lease=lease) == pid


async def test_the_lease_of_an_idle_process_does_not_end_its_next_run(
    bench: Bench, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.runner.reuse.kept_children.END_SECONDS", 2.0)
    for lease in (None, boottime() + 60):
        await run(bench, project)
        await run(bench, project, {"do": "wait"}, lease=lease)


async def test_a_lease_that_its_zygote_did_not_get_is_sent_again(
    bench: Bench, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise BlockingIOError

    pid = await run(bench, project)
    (kept,) = bench.runner._kept._kept
    until = boottime() + 1
    for sending in (fail, socket.send_fds):
        monkeypatch.setattr(socket, "send_fds", sending)
        kept.child._zygote.lease(kept.child._name, until)
    await gone(pid)


async def test_a_process_that_holds_much_memory_ends(
    bench: Bench, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = await run(bench, project, {"do": "hold", "megabytes": 60})
    assert await run(bench, project) == pid
    limits = Limits(memory_limit=100 << 20)
    assert await run(bench, project, limits=limits) == pid, "the bound counts after a run"
    await gone(pid)
    monkeypatch.setattr("windlass.runner.reuse.kept_children.MOST_MEMORY", 30 << 20)
    await gone(await run(bench, project, {"do": "hold", "megabytes": 40}))


async def test_an_old_process_ends(bench: Bench, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.runner.reuse.kept_children.MOST_AGE", 0.0)
    await gone(await run(bench, project))


async def test_a_run_that_is_stopped_ends_its_process_alone(bench: Bench, project: Path) -> None:
    pid = await run(bench, project)
    terminator, heard = Terminator(), Heard()
    more: dict[str, Any] = {"reuse": 100, "version": "1"}
    sleeping = asyncio.create_task(bench.run(project, {"do": "sleep"}, None, heard, terminator, **more))
    await heard.until(lambda one: getattr(one, "line", "") == f"asleep {pid}")
    other = await run(bench, project)
    terminator.end(stopped())
    assert (await sleeping).state is State.CANCELLED
    await gone(pid)
    assert await run(bench, project) == other


async def test_a_limit_holds_in_a_process_that_has_run_before(bench: Bench, project: Path) -> None:
    await run(bench, project)
    outcome = await bench.run(project, {"do": "sleep"}, reuse=100, version="1", limits=Limits(memory_limit=1 << 20))
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.LIMIT)


async def test_a_process_that_was_killed_while_it_was_idle(bench: Bench, project: Path) -> None:
    pid = await run(bench, project)
    os.kill(pid, signal.SIGKILL)
    await gone(pid)
    assert await run(bench, project) != pid


@pytest.mark.parametrize("end", ["killed", "lease"])
async def test_a_process_that_dies_before_it_begins_its_run(
    bench: Bench, project: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    pid = await run(bench, project)
    os.kill(pid, signal.SIGSTOP)
    first_frames = ReusableChild._first_frames

    def die(child: ReusableChild) -> bytes:
        if child.runs > 1 and end == "lease":
            child._zygote.lease(child._name, boottime() + 0.1)
        elif child.runs > 1:
            os.kill(pid, signal.SIGKILL)
        return first_frames(child)

    monkeypatch.setattr(ReusableChild, "_first_frames", die)
    assert await run(bench, project) != pid


@pytest.mark.parametrize("deed", ["print_later", "send_later", "fork_later", "grow_later"])
async def test_a_process_that_is_not_idle_ends(bench: Bench, project: Path, deed: str) -> None:
    pid = await run(bench, project, {"do": deed})
    await gone(pid)
    assert await run(bench, project) != pid


async def test_idle_processes_end_with_their_zygote(scratch: Path, project: Path) -> None:
    async with running_bench(scratch) as bench:
        pid = await run(bench, project)
        (zygote,) = zygotes(scratch)
        os.kill(zygote.pid, signal.SIGKILL)
        await gone(pid, zygote.pid)
        other = await run(bench, project)
        assert alive(other)
    await gone(other)


async def test_idle_processes_make_room_for_a_zygote(
    scratch: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.runner.zygote_pool.TIDY_EVERY", 600.0)
    async with running_bench(scratch, RunnerConfig(zygote_memory=200 << 20)) as bench:
        pid = await run(bench, project, {"do": "hold", "megabytes": 200})
        used = bench.runner.zygotes()[1]
        assert used > 200 << 20
        await run(bench, project, preload_project=True)
        await gone(pid)
        assert len(zygotes(scratch)) == 2, "the idle process made enough room"


async def test_a_cancelled_run_ends_its_process(bench: Bench, project: Path) -> None:
    pid = await run(bench, project)
    heard = Heard()
    more: dict[str, Any] = {"reuse": 100, "version": "1"}
    sleeping = asyncio.create_task(bench.run(project, {"do": "sleep"}, None, heard, **more))
    async with asyncio.timeout(DEADLINE):
        await heard.until(lambda one: getattr(one, "line", "") == f"asleep {pid}")
    sleeping.cancel()
    await asyncio.wait([sleeping])
    await gone(pid)


async def test_idle_processes_end_when_the_memory_of_zygotes_is_used_up(scratch: Path, project: Path) -> None:
    async with running_bench(scratch, RunnerConfig(zygote_memory=200 << 20)) as bench:
        pid = await run(bench, project, {"do": "hold", "megabytes": 200})
        async with asyncio.timeout(IDLE_SECONDS / 2):
            await gone(pid)


async def test_a_run_that_is_asked_to_end_when_it_has_ended_passes_no_signal_to_the_next_one(
    bench: Bench, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminator, end_of_run = Terminator(), ReusableChild._end_of_run

    async def ask(child: ReusableChild) -> Any:
        exited = await end_of_run(child)
        terminator.end(stopped())
        return exited

    monkeypatch.setattr(ReusableChild, "_end_of_run", ask)
    await bench.run(project, terminator=terminator, reuse=100, version="1")
    assert bench.runner._kept._kept == []


async def test_a_run_that_is_cancelled_when_it_has_ended_leaves_no_process(
    bench: Bench, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resting, go_on, rest = asyncio.Event(), asyncio.Event(), ReusableChild.rest
    pids = []

    async def slow_rest(child: ReusableChild, seconds: float) -> None:
        pids.append(child.process.pid)
        resting.set()
        await go_on.wait()
        await rest(child, seconds)

    monkeypatch.setattr(ReusableChild, "rest", slow_rest)
    running = asyncio.create_task(run(bench, project))
    await resting.wait()
    running.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait([running])
    kept = [one.child.process.pid for one in bench.runner._kept._kept]
    await gone(*(set(pids) - set(kept)))
    assert await run(bench, project) in kept


async def test_a_process_that_becomes_idle_while_its_runner_stops_ends(
    scratch: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resting, go_on, rest = asyncio.Event(), asyncio.Event(), ReusableChild.rest

    async def slow_rest(child: ReusableChild, seconds: float) -> None:
        await rest(child, seconds)
        resting.set()
        await go_on.wait()

    monkeypatch.setattr(ReusableChild, "rest", slow_rest)
    async with running_bench(scratch) as bench:
        before = open_descriptors()
        running = asyncio.create_task(run(bench, project))
        await resting.wait()
        stopping = asyncio.create_task(bench.runner.stop())
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait([running, stopping])
        assert (bench.runner._kept._kept, bench.runner._kept._ending) == ([], set())
        assert open_descriptors() <= before


async def test_a_process_that_is_born_again_and_again_takes_no_descriptors(bench: Bench, project: Path) -> None:
    pid = await run(bench, project)
    before = open_descriptors()
    assert await run(bench, project, {"do": "born"}) == pid
    assert open_descriptors() <= before
    other = await run(bench, project, {"do": "born"}, version="2")
    assert other != pid
    assert open_descriptors() < before + 20


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))

"""A worker that stands still can end nothing: what it runs ends by itself when its lease does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import psutil
import pytest

from patience import DEADLINE
from projects_for_tests.ends import alive, gone
from projects_for_tests.making import function_project
from windlass.runner import boottime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LEASE = 3.0

CODE = '''
import ctypes, os, re, signal, subprocess, time


def run(do):
    """With a process that it has started, and one that has lost the process that started it."""
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    told, telling = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(telling, str(os.getpid()).encode())
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        os._exit(0)
    os.write(1, f"asleep {os.getpid()} {other.pid} {os.read(told, 100).decode()}\\n".encode())
    globals()["do_" + do]()


def do_sleep():
    time.sleep(600)


def do_hold_the_interpreter():
    ctypes.PyDLL(None).sleep(600)


def do_match_for_ever():
    re.match(r"(a+)+$", "a" * 64 + "b")


def do_stand_still():
    os.kill(os.getpid(), signal.SIGSTOP)


def do_close_descriptors_and_hold_the_interpreter():
    os.closerange(3, 100)
    ctypes.PyDLL(None).sleep(600)


def do_talk():
    while True:
        print("still here")
        time.sleep(0.02)
'''

WORKER = """
import asyncio, sys
from pathlib import Path
from windlass.projects import recognise
from windlass.runner import LeaseHandle, Output, Runner, RunSpec, boottime

async def report(message):
    if isinstance(message, Output):
        print(message.line if message.line.startswith("asleep") else f"reported {boottime()}", flush=True)

async def renew(lease_handle, lease):
    while True:
        await asyncio.sleep(lease / 8)
        lease_handle.extend(boottime() + lease)

async def main(scratch, project, deed, lease):
    runner, lease, lease_handle = Runner(Path(scratch), {}), float(lease), LeaseHandle()
    await runner.start()
    await runner.warm(Path(sys.executable), None)
    found = recognise(Path(project)).project
    renewing = asyncio.create_task(renew(lease_handle, lease))
    ends = boottime() + lease
    order = RunSpec("some-kickoff", 1, Path(sys.executable), None, found, {}, {"do": deed}, lease=ends)
    outcome = await runner.run(order, report, lease_handle=lease_handle)
    print("outcome", outcome.reason, outcome.error, flush=True)
    renewing.cancel()
    await runner.stop()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return function_project(tmp_path / "project", CODE)


@asynccontextmanager
async def worker(folder: Path, project: Path, deed: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WORKER, str(folder / "scratch"), str(project), deed, str(LEASE)),
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        yield process
    finally:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):  # it may have come to its end
            below = [one.pid for one in psutil.Process(process.pid).children(recursive=True)]
            process.kill()
            await gone(*below)
        await process.communicate()


async def pids_of(process: asyncio.subprocess.Process) -> list[int]:
    return [int(pid) for pid in (await line_of(process, "asleep")).split()[1:]]


async def line_of(process: asyncio.subprocess.Process, word: str) -> str:
    """The next one that begins so."""
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE):
        async for line in process.stdout:
            if line.startswith(word.encode()):
                return line.decode().strip()
    raise AssertionError(f"it ended without a line that begins with {word!r}")


@pytest.mark.parametrize(
    "deed",
    [
        "sleep",
        "hold_the_interpreter",
        "match_for_ever",
        "stand_still",
        "close_descriptors_and_hold_the_interpreter",
        "talk",
    ],
)
async def test_nothing_that_runs_outlives_the_lease_of_a_worker_that_is_stopped(
    tmp_path: Path, project: Path, deed: str
) -> None:
    async with worker(tmp_path, project, deed) as process:
        pids = await pids_of(process)
        process.send_signal(signal.SIGSTOP)
        assert all(map(alive, pids[1:]))
        await gone(*pids)
        assert psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


async def test_a_worker_that_goes_on_after_its_leases_ended_reports_nothing_more(tmp_path: Path, project: Path) -> None:
    async with worker(tmp_path, project, "talk") as process:
        pids = await pids_of(process)
        await line_of(process, "reported")
        process.send_signal(signal.SIGSTOP)
        stopped = boottime()
        await gone(*pids)
        while boottime() < stopped + LEASE:  # noqa: ASYNC110 - a clock tells nobody
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGCONT)
        assert process.stdout is not None
        *reported, outcome = (await asyncio.wait_for(process.stdout.read(), DEADLINE)).decode().splitlines()
        assert outcome == "outcome lost the lease ended before it was renewed."
        late = [line for line in reported if float(line.split()[1]) >= stopped + LEASE]
        assert len(late) <= 1, "at most what was just being reported when it was stopped"


async def test_a_worker_that_renews_keeps_what_it_runs(tmp_path: Path, project: Path) -> None:
    async with worker(tmp_path, project, "hold_the_interpreter") as process:
        pids = await pids_of(process)
        begun = boottime()
        while boottime() < begun + 1.5 * LEASE:  # noqa: ASYNC110 - a clock tells nobody
            await asyncio.sleep(0.02)
        assert all(map(alive, pids))

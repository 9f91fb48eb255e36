from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import psutil
import pytest

from patience import DEADLINE
from projects_for_tests.ends import gone
from projects_for_tests.making import doing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return doing("function", tmp_path)


@asynccontextmanager
async def running(folder: Path, project: Path) -> AsyncIterator[tuple[psutil.Process, list[int]]]:
    """A server that runs the project, and the processes of the run. Kills all that a test leaves."""
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER, str(folder / "scratch"), str(project)),
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    below: list[psutil.Process] = []
    try:
        assert server.stdout is not None
        line = await asyncio.wait_for(server.stdout.readline(), DEADLINE)
        process = psutil.Process(server.pid)
        below = process.children(recursive=True)
        pids = [int(pid) for pid in line.split()[1:]]
        assert {*pids} <= {one.pid for one in below}
        yield process, pids
    finally:
        for end in (*(one.kill for one in below), server.kill):
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                end()
        await server.wait()


async def test_nothing_that_runs_is_left_of_a_server_that_was_killed(tmp_path: Path, project: Path) -> None:
    async with running(tmp_path, project) as (server, _):
        below = server.children(recursive=True)
        server.kill()
        await gone(*(process.pid for process in below))


async def test_not_even_when_its_zygote_is_killed_with_it(tmp_path: Path, project: Path) -> None:
    async with running(tmp_path, project) as (server, pids):
        (zygote,) = server.children()
        server.suspend()  # it must not notice
        zygote.kill()
        server.kill()
        await gone(zygote.pid, *pids)


@pytest.mark.parametrize("stopped", ["run", "zygote", "both"])
async def test_nothing_that_is_stopped_is_left_of_a_server_that_was_killed(
    tmp_path: Path, project: Path, stopped: str
) -> None:
    """As the server stops the processes of a run with too many of them, before it kills them."""
    async with running(tmp_path, project) as (server, pids):
        (zygote,), below = server.children(), server.children(recursive=True)
        suspended = [one for one in below if stopped == "both" or (one.pid in pids) == (stopped == "run")]
        await suspend(*suspended)
        server.kill()
        await gone(zygote.pid, *(process.pid for process in below))


async def test_not_even_when_the_zygote_of_stopped_processes_is_killed_with_it(tmp_path: Path, project: Path) -> None:
    async with running(tmp_path, project) as (server, pids):
        (zygote,) = server.children()
        await suspend(server, *map(psutil.Process, pids))
        zygote.kill()
        server.kill()
        await gone(zygote.pid, *pids)


async def suspend(*processes: psutil.Process) -> None:
    """Returns when all are stopped."""
    for process in processes:
        process.suspend()
    async with asyncio.timeout(DEADLINE):
        while {process.status() for process in processes} != {psutil.STATUS_STOPPED}:  # noqa: ASYNC110 - of others
            await asyncio.sleep(0.01)


SERVER = """
import asyncio, sys
from pathlib import Path
from windlass.projects import recognise
from windlass.runner import Output, Runner, RunSpec

async def report(message):
    if isinstance(message, Output):
        print(message.line, flush=True)

async def main(scratch, project):
    runner = Runner(Path(scratch), {})
    await runner.start()
    found = recognise(Path(project)).project
    await runner.run(RunSpec("some-kickoff", 1, Path(sys.executable), None, found, {}, {"do": "sleep"}), report)

asyncio.run(main(*sys.argv[1:]))
"""

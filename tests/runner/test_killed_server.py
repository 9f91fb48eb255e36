from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from projects_for_tests.ends import gone
from projects_for_tests.making import doing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return doing("function", tmp_path)


async def test_nothing_that_runs_is_left_of_a_server_that_was_killed(tmp_path: Path, project: Path) -> None:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER, str(tmp_path / "scratch"), str(project)),
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert server.stdout is not None
    line = await asyncio.wait_for(server.stdout.readline(), 60)
    pids = [int(pid) for pid in line.split()[1:]]
    below = psutil.Process(server.pid).children(recursive=True)
    assert {*pids} <= {process.pid for process in below}
    server.kill()
    await server.wait()
    await gone(*(process.pid for process in below))


async def test_not_even_when_its_zygote_is_killed_with_it(tmp_path: Path, project: Path) -> None:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER, str(tmp_path / "scratch"), str(project)),
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert server.stdout is not None
    pids = [int(pid) for pid in (await asyncio.wait_for(server.stdout.readline(), 60)).split()[1:]]
    (zygote,) = psutil.Process(server.pid).children()
    os.kill(server.pid, signal.SIGSTOP)  # it must not notice
    zygote.kill()
    server.kill()
    await server.wait()
    await gone(zygote.pid, *pids)


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

"""The server's event loop starts processes in another way than asyncio's own: with copies of descriptors."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop

from patience import DEADLINE
from windlass.kickoffs.states import State
from windlass.runner import Runner, RunSpec
from windlass_child.protocol.messages import Project

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from windlass.kickoffs.outcome import Outcome

pytestmark = pytest.mark.unit


PYPROJECT = '[project]\nname = "leaves"\nversion = "1"\n'
CODE = """
import os, subprocess

def descriptors():
    folder = "/proc/self/fd"
    return [os.readlink(f"{folder}/{n}") for n in os.listdir(folder) if os.path.lexists(f"{folder}/{n}")]

def daemon():
    return subprocess.Popen(["sleep", "600"], start_new_session=True, close_fds=False).pid
"""


def on_uvloop(scratch: Path, work: Callable[[Runner], Awaitable[Outcome]]) -> Outcome:
    async def run() -> Outcome:
        runner = Runner(scratch / "runs", {"PATH": os.defpath})
        await runner.start()
        try:
            return await work(runner)
        finally:
            async with asyncio.timeout(DEADLINE):
                await runner.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        return loop.run(run())


def order(folder: Path, function: str) -> RunSpec:
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "leaves.py").write_text(CODE)
    project = Project("function", str(folder), f"leaves:{function}")
    return RunSpec("k", 1, Path(sys.executable), None, project, {}, {})


async def discard(_: object) -> None: ...


def test_a_crew_gets_no_descriptor_of_the_servers(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    descriptor = os.open(secret, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    try:
        outcome = on_uvloop(tmp_path, lambda runner: runner.run(order(tmp_path, "descriptors"), discard))
    finally:
        os.close(descriptor)
    assert outcome.state is State.SUCCESS
    assert str(secret) not in outcome.json


def test_a_process_that_a_crew_leaves_behind_does_not_keep_the_server_from_stopping(tmp_path: Path) -> None:
    outcome = on_uvloop(tmp_path, lambda runner: runner.run(order(tmp_path, "daemon"), discard))
    assert outcome.state is State.SUCCESS
    with pytest.raises(ProcessLookupError):  # it was ended with its crew
        os.kill(outcome.json, 0)

"""What crews cost that wait for their model: memory, and how many of them there can be at once."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.figures import Figure, spread
from bench.machine import MB, available_memory, lives, private_memory
from bench.models import SilentModel
from bench.served import PROJECTS
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.outcome import Termination
from windlass.kickoffs.states import Reason, State
from windlass.projects import recognise
from windlass.runner import Output, Runner, RunSpec, Terminator
from windlass.runner.run_spec import machine_environment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from windlass.kickoffs.outcome import Outcome

PYTHON = Path(sys.executable)
STOPPED = Termination(State.CANCELLED, Reason.CANCELLED, "it was stopped.")
WITHIN = 300.0
SETTLING = 1.0
"""Seconds between the request for an answer and the measurement, in which the last of the call is done."""


@dataclass(slots=True)
class Crowd:
    """Runs of the waiting crew, one `environment` for all, until they are stopped."""

    runner: Runner
    environment: dict[str, str]
    pids: list[int] = field(default_factory=list)
    asked: int = 0
    enders: list[Terminator] = field(default_factory=list)
    runs: list[asyncio.Task[Outcome]] = field(default_factory=list)

    def grow(self, count: int) -> None:
        found = recognise(PROJECTS / "waiting")
        for _ in range(count):
            terminator = Terminator()
            order = RunSpec(str(new_id()), 1, PYTHON, found.preload, found.project, self.environment, {})
            self.enders.append(terminator)
            self.runs.append(asyncio.create_task(self.runner.run(order, self._handle, terminator)))

    async def stop(self) -> float:
        """Seconds until none of their processes is left."""
        begun = time.perf_counter()
        for terminator in self.enders:
            terminator.end(STOPPED)
        await asyncio.gather(*self.runs)
        while any(map(lives, self.pids)):
            await asyncio.sleep(0.01)
        return time.perf_counter() - begun

    async def _handle(self, what: Any) -> None:
        if isinstance(what, Output) and what.line.startswith("process "):
            self.pids.append(int(what.line.split()[1]))
        elif isinstance(what, Output) and what.line == "asked":
            self.asked += 1

    def raise_if_one_ended(self) -> None:
        for run in self.runs:
            if run.done():
                raise RuntimeError(f"a crew that should wait has ended: {run.result()}")


def waiting(*, children: int, crowd: int) -> list[Figure]:
    return asyncio.run(_waiting(children, crowd))


async def _waiting(children: int, crowd: int) -> list[Figure]:
    async with SilentModel() as model, a_runner() as runner:
        in_process = await memory_of_each(runner, model, children, {})
        in_client = await memory_of_each(runner, model, children, model.environment)
        at_once = await all_at_once(runner, model, crowd)
    return [
        Figure("memory of a waiting child, model in-process, MB", spread(in_process, "", 1), "at most 20"),
        Figure("memory of a waiting child, in OpenAI's client, MB", spread(in_client, "", 1), "at most 38"),
        *at_once,
    ]


async def memory_of_each(runner: Runner, model: SilentModel, count: int, environment: dict[str, str]) -> list[float]:
    crowd = Crowd(runner, environment)
    crowd.grow(count)
    await all_wait(crowd, model)
    await asyncio.sleep(SETTLING)
    used = [private_memory(pid) / MB for pid in crowd.pids]
    await crowd.stop()
    return used


async def all_at_once(runner: Runner, model: SilentModel, count: int) -> list[Figure]:
    before, begun = available_memory(), time.perf_counter()
    crowd = Crowd(runner, model.environment)
    crowd.grow(count)
    await all_wait(crowd, model)
    took = time.perf_counter() - begun
    await asyncio.sleep(SETTLING)
    total, each = before - available_memory(), statistics.median(private_memory(pid) / MB for pid in crowd.pids)
    stopped = await crowd.stop()
    return [
        Figure(f"{count} crews wait at once in OpenAI's client, after s", f"{took:.0f}"),
        Figure("  memory of all of them, GB", f"{total / 1024 / MB:.1f}"),
        Figure("  private memory of one of them, MB", f"{each:.1f}", "at most 38"),
        Figure("  stop of all of them to no process left, s", f"{stopped:.1f}"),
    ]


async def all_wait(crowd: Crowd, model: SilentModel) -> None:
    async with asyncio.timeout(WITHIN):
        while (model.asked if crowd.environment else crowd.asked) < len(crowd.runs):
            crowd.raise_if_one_ended()
            await asyncio.sleep(0.02)
    model.asked = 0


@asynccontextmanager
async def a_runner() -> AsyncIterator[Runner]:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        runner = Runner(Path(folder), machine_environment(os.environ))
        await runner.start()
        try:
            await runner.warm(PYTHON, "crewai")
            yield runner
        finally:
            await runner.stop()

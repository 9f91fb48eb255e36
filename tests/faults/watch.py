"""Looks again and again which processes that asked the model are still alive."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import psutil

from windlass.aio import cancelled

if TYPE_CHECKING:
    from faults.witness import Call, Witness

EVERY = 0.1
"""Seconds."""


@dataclass(slots=True)
class Runner:
    """The process of a run: when it first asked the model, and when it was last seen alive. Unix times."""

    run: str
    process: psutil.Process
    asked: float
    alive: float


class ResourceMonitor:
    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._seen = 0
        self._alive: dict[int, Runner] = {}
        self.all: list[Runner] = []

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._look_on())
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancelled(self._task)

    async def _look_on(self) -> None:
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(EVERY)

    def look(self) -> None:
        for call in self._witness.calls(after=self._seen):
            self._seen += 1
            self._meet(call)
        for pid, runner in list(self._alive.items()):
            now = time.time()
            if is_alive(runner.process):
                runner.alive = now
            else:
                del self._alive[pid]

    def _meet(self, call: Call) -> None:
        known = self._alive.get(call.pid) if call.pid else None
        if call.pid is None or (known and known.run == call.run):
            return
        with suppress(psutil.NoSuchProcess):  # it ended meanwhile
            runner = Runner(call.run, psutil.Process(call.pid), call.began, call.began)
            self._alive[call.pid] = runner
            self.all.append(runner)


def is_alive(process: psutil.Process) -> bool:
    """As a zombie it runs nothing; a number that another process has by now is not it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

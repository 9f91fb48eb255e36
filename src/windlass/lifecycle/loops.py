from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from windlass import log
from windlass.errors import DatabaseUnavailable
from windlass.store.cancelling import cancelled

BETWEEN_ATTEMPTS = 0.5
"""Seconds."""

logger = log.logger(__name__)

Step = Callable[[], Awaitable[None]]


class Loops:
    """Steps that are done again and again, each in a task of its own, whatever happens in one turn."""

    def __init__(self, *steps: Step) -> None:
        self._steps = steps
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def running(self) -> bool:
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    async def start(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(_again_and_again(step), name=step.__name__) for step in self._steps]

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        await cancelled(*tasks)


async def until_the_database_answers(step: Step) -> None:
    """The step may be done twice: its answer can be lost after it took effect."""
    while True:
        try:
            return await step()
        except DatabaseUnavailable:
            await asyncio.sleep(BETWEEN_ATTEMPTS)


async def _again_and_again(step: Step) -> None:
    while True:
        try:
            await step()
        except DatabaseUnavailable:
            await asyncio.sleep(BETWEEN_ATTEMPTS)
        except Exception as error:  # noqa: BLE001 - one turn of a loop
            logger.event("worker.loop_failed", loop=step.__name__, exc=error)
            await asyncio.sleep(BETWEEN_ATTEMPTS)

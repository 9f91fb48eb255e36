"""The methods of a flow as tasks: their names, and the moves of their task records."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from windlass_crewside.frameworks.crew_tasks import task_key
from windlass_crewside.frameworks.results import text_of_any
from windlass_crewside.messages import KnownTask, TaskEnded, TaskStarted
from windlass_crewside.veil import nameless

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from windlass_crewside.report import Report


def described(methods: Mapping[str, Any], flow: str) -> list[KnownTask]:
    """In the order in which they are written; `flow` is the name of theirs."""
    return [
        {"key": task_key(method.description or f"{flow}.{name}"), "name": name, "agent": None}
        for name, method in methods.items()
    ]


class MethodFollower:
    """A method that runs several times has one task record, which tells of the last time."""

    def __init__(self, tasks: list[KnownTask], report: Report) -> None:
        self._report = report
        self._tasks = {str(task["name"]): (position, task) for position, task in enumerate(tasks)}
        self._known: set[str] = set()

    def position(self, name: str) -> int:
        """Of its task record."""
        return self._tasks[name][0]

    def restored(self, name: str) -> None:
        """An earlier attempt has told of it: its task record stays as it is."""
        self._known.add(name)

    async def followed(self, name: str, running: Coroutine[Any, Any, Any]) -> tuple[Any, Any]:
        """What `running` gives: the output of the method, and something of the engine's."""
        self._known.add(name)
        position, task = self._tasks[name]
        began = time.time()
        self._report.send(TaskStarted(position, **task, at=began))
        try:
            output, event = await running
        except asyncio.CancelledError:  # it lost a race
            self._end(name, "skipped")
            raise
        except BaseException:
            self._end(name, "failed")
            raise
        ended = time.time()
        self._report.send(TaskEnded(position, "completed", ended, text_of_output(output), None, ended - began))
        return output, event

    def skip_the_rest(self) -> None:
        for name in self._tasks:
            if name not in self._known:
                self._end(name, "skipped")

    def _end(self, name: str, state: str) -> None:
        self._report.send(TaskEnded(self._tasks[name][0], state, time.time()))


def text_of_output(output: Any) -> str:
    try:
        return text_of_any(output)
    except Exception:  # noqa: BLE001 - runs code of the project, which the run does not depend on
        return nameless(output)

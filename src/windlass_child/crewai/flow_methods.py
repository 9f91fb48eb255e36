"""Reports the methods of a flow as tasks: their names, and the changes of their task records.

Hides what crewai prints of a flow, because its events hold the same, redacted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from windlass_child.crewai.features import first_of
from windlass_child.crewai.flow_shape import GIVES_EVENT
from windlass_child.journal.fingerprint import task_key
from windlass_child.protocol.messages import TaskEnded, TaskStarted
from windlass_child.replacements import replace_name
from windlass_child.results import text_of_output

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from windlass_child.process.report import Report
    from windlass_child.protocol.fields import KnownTask


formatter = first_of(
    "crewai.events.utils.console_formatter:ConsoleFormatter",
    "crewai.utilities.events.utils.console_formatter:ConsoleFormatter",
)


def described(methods: Mapping[str, Any], flow: str) -> list[KnownTask]:
    """Returns the tasks of the methods, in source order. `flow` is the name of the flow."""
    return [
        {"key": task_key(method.description or f"{flow}.{name}"), "name": name, "agent": None}
        for name, method in methods.items()
    ]


class MethodFollower:
    """Reports the runs of methods. A method that runs several times has one task record, which shows the last run."""

    def __init__(self, tasks: list[KnownTask], report: Report) -> None:
        self._report = report
        self._tasks = {str(task["name"]): (position, task) for position, task in enumerate(tasks)}
        self._known: set[str] = set()

    def position(self, name: str) -> int:
        """Returns the position of the method's task record."""
        return self._tasks[name][0]

    def restored(self, name: str) -> None:
        """Marks a method that an earlier attempt has reported. Its task record is not changed."""
        self._known.add(name)

    async def followed(self, name: str, running: Coroutine[Any, Any, Any]) -> Any:
        """Awaits `running` and returns its result: the method's output, with an event of the flow's engine where this
        crewai gives one.
        """
        self._known.add(name)
        position, task = self._tasks[name]
        began = time.time()
        self._report.send(TaskStarted(position, **task, at=began))
        try:
            given = await running
        except asyncio.CancelledError:  # the method lost a race
            self._end(name, "skipped")
            raise
        except BaseException:
            self._end(name, "failed")
            raise
        ended = time.time()
        output = text_of_output(given[0] if GIVES_EVENT else given)
        self._report.send(TaskEnded(position, "completed", ended, output, None, ended - began))
        return given

    def skip_the_rest(self) -> None:
        for name in self._tasks:
            if name not in self._known:
                self._end(name, "skipped")

    def _end(self, name: str, state: str) -> None:
        self._report.send(TaskEnded(self._tasks[name][0], state, time.time()))


def hush() -> None:
    """Suppresses crewai's console panels and listener errors of flows.

    It is never undone, because a process runs one project.
    """
    if formatter is None or formatter.print_panel.__module__ == __name__:
        return
    replace_name("crewai.events.utils.console_formatter:ConsoleFormatter.print_panel", of_others, formatter)
    for name in ("crewai.flow.runtime", "crewai.flow.flow"):
        logging.getLogger(name).addFilter(no_failed_listener)


def of_others(print_panel: Callable[..., None]) -> Callable[..., None]:
    def print_other_panels(self: Any, *arguments: Any, is_flow: bool = False, **named: Any) -> None:
        if not is_flow:
            print_panel(self, *arguments, **named)

    return print_other_panels


def no_failed_listener(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Error executing listener ")

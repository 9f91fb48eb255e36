"""Builds the task records of a kickoff from the reports of its runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from windlass.kickoffs.states import TaskState
from windlass_child.protocol.fields import LONGEST_NAME
from windlass_child.protocol.messages import TaskEnded, TasksKnown, TaskStarted
from windlass_child.protocol.truncation import beginning

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from windlass.kickoffs.manifest import TaskDefinition
    from windlass_child.protocol.fields import Text

UNSTABLE = "unstable_task_description"

MOST_RECORDS = 10_000
"""Task records of one kickoff. Each status shows all of them."""
MOST_WARNINGS = 200
"""Warnings that one run adds to its kickoff."""
LONGEST_WARNING = 4000
"""Characters of a warning's text."""


class TooManyRecords(Exception):  # noqa: N818 - describes the run
    """Reports that the run has more tasks than a kickoff can have task records."""


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """`started_at` and `finished_at` are Unix times in seconds. `execution_time` is in seconds, and sums all finished
    runs of the task, those in earlier attempts included.
    """

    position: int
    task_id: str
    key: str
    name: str | None
    agent: str | None
    state: TaskState = TaskState.PENDING_RUN
    registered: bool = True
    started_at: float | None = None
    finished_at: float | None = None
    output: Text | None = None
    execution_time: float | None = None


@dataclass(frozen=True, slots=True)
class Warning_:  # noqa: N801 - Warning is a builtin
    code: str
    message: str
    task_id: str | None = None

    def to_json(self) -> dict[str, str]:
        members = {"code": self.code, "message": self.message, "task_id": self.task_id}
        return {name: value for name, value in members.items() if value is not None}


def pending_records(tasks: Sequence[TaskDefinition]) -> list[TaskRecord]:
    """Returns the task records of a kickoff that has not run yet."""
    return [TaskRecord(at, task.task_id, task.key, task.name, task.agent) for at, task in enumerate(tasks)]


class TaskRecords:
    """Holds the task records of one run. A record keeps its output only until `take_changed` has returned it.

    Every method that adds a record raises TooManyRecords.
    """

    def __init__(self, registered: Sequence[TaskDefinition]) -> None:
        self.registered = registered
        self.by_position = {record.position: record for record in pending_records(registered)}
        self.warnings: list[Warning_] = []
        self._changed: set[int] = set()
        self._position_of = {record.task_id: at for at, record in self.by_position.items()}
        self._last_number: dict[str, int] = {}

    @property
    def changed(self) -> bool:
        return bool(self._changed)

    def remember(self, earlier: Iterable[TaskRecord]) -> None:
        """Adds the task records of earlier attempts."""
        for record in earlier:
            self._keep(record)

    def apply(self, message: TasksKnown | TaskStarted | TaskEnded) -> None:
        match message:
            case TasksKnown():
                self.know(message)
            case TaskStarted():
                self.start(message)
            case TaskEnded():
                self.end(message)

    def know(self, message: TasksKnown) -> None:
        """Compares the tasks of the crew that was built for this run with the registered tasks, by position."""
        for position, task in enumerate(message.tasks):
            if self._differs(position, task["key"]):
                record = self._unregistered(position, task["key"], task.get("name"), task.get("agent"))
                self._put(record)
                self._warn_of(record)

    def start(self, message: TaskStarted) -> None:
        if self._differs(message.position, message.key):
            record = self._unregistered(message.position, message.key, message.name, message.agent)
            self._put(record)
            if message.position < len(self.registered):  # later positions are tasks that the run created: steps, plans
                self._warn_of(record)
        record = self.by_position[message.position]
        self._put(
            replace(
                record,
                state=TaskState.RUNNING,
                started_at=message.at,
                agent=beginning(message.agent or record.agent or "", LONGEST_NAME) or None,
                # these may be set from an earlier start of the same task
                finished_at=None,
                output=None,
            )
        )

    def end(self, message: TaskEnded) -> None:
        record = self.by_position.get(message.position)
        if record is None:
            return
        self._put(
            replace(
                record,
                state=TaskState(message.state),
                finished_at=message.at,
                started_at=record.started_at or (None if message.state == TaskState.SKIPPED else message.at),
                output=message.output,
                agent=beginning(message.agent or record.agent or "", LONGEST_NAME) or None,
                execution_time=_sum(record.execution_time, message.seconds),
            )
        )

    def ask(self, position: int | None, at: float | None = None) -> None:
        """Notes that the task waits for a person. `at` is the time at which its run ends, None if the run waits too."""
        record = self.by_position.get(position) if position is not None else None
        if record is not None:
            since = None if at is None or record.started_at is None else max(0.0, at - record.started_at)
            self._put(
                replace(
                    record,
                    state=TaskState.PENDING_HUMAN_INPUT,
                    execution_time=_sum(record.execution_time, since),
                )
            )

    def answer(self, position: int | None) -> None:
        """Notes that the task goes on after an answer."""
        record = self.by_position.get(position) if position is not None else None
        if record is not None and record.state is TaskState.PENDING_HUMAN_INPUT:
            self._put(replace(record, state=TaskState.RUNNING))

    def name(self, position: int | None) -> str | None:
        """Returns the name of the task, or the id of a task without a name."""
        record = self.by_position.get(position) if position is not None else None
        return (record.name or record.task_id) if record else None

    def task_id(self, position: int | None) -> str | None:
        record = self.by_position.get(position) if position is not None else None
        return record.task_id if record else None

    def take_changed(self, most: float = math.inf) -> list[TaskRecord]:
        """Returns the changed records that were not returned yet, by position.

        Stops before the outputs exceed `most` bytes; the next call returns the rest. The first record is returned even
        if it is larger.
        """
        taken: list[TaskRecord] = []
        for position in sorted(self._changed):
            record = self.by_position[position]
            most -= len(record.output or "")
            if taken and most < 0:
                break
            taken.append(record)
            self.by_position[position] = replace(record, output=None)  # from here on only the database holds the output
            self._changed.discard(position)
        return taken

    def warn(self, warning: Warning_) -> None:
        """Adds a warning, up to MOST_WARNINGS. The last one reports that further warnings are dropped."""
        if len(self.warnings) < MOST_WARNINGS - 1:
            self.warnings.append(replace(warning, message=beginning(warning.message, LONGEST_WARNING)))
        elif len(self.warnings) < MOST_WARNINGS:
            message = f"The run gave more than {MOST_WARNINGS - 1} warnings. The server dropped the others."
            self.warnings.append(Warning_("warnings_cut", message))

    def _put(self, record: TaskRecord) -> None:
        self._keep(record)
        self._changed.add(record.position)

    def _keep(self, record: TaskRecord) -> None:
        before = self.by_position.get(record.position)
        if before is None and len(self.by_position) >= MOST_RECORDS:
            raise TooManyRecords
        if before is not None and self._position_of.get(before.task_id) == record.position:
            del self._position_of[before.task_id]
        self._position_of[record.task_id] = record.position
        self.by_position[record.position] = record

    def _differs(self, position: int, key: str) -> bool:
        record = self.by_position.get(position)
        return record is None or record.key != key

    def _unregistered(self, position: int, key: str, name: str | None, agent: str | None) -> TaskRecord:
        name, agent = name and beginning(name, LONGEST_NAME), agent and beginning(agent, LONGEST_NAME)
        return TaskRecord(position, self._free(name or key, position), key, name, agent, registered=False)

    def _free(self, wanted: str, position: int) -> str:
        """Returns `wanted`, or `wanted-2` and so on if a record at another position has that id."""
        # numbers only rise: the search starts at the last one, so many tasks of one name take no quadratic time
        number = self._last_number.get(wanted, 1)
        found = wanted if number == 1 else f"{wanted}-{number}"
        while self._position_of.get(found, position) != position:
            number += 1
            found = f"{wanted}-{number}"
        self._last_number[wanted] = number
        return found

    def _warn_of(self, record: TaskRecord) -> None:
        self.warn(
            Warning_(
                UNSTABLE,
                f"The description of task {record.task_id} differs from the registered one. Keep descriptions free of "
                "values that change from run to run (dates, secrets): pass them as inputs, or read them in a tool.",
                record.task_id,
            )
        )


def _sum(before: float | None, seconds: float | None) -> float | None:
    return before if seconds is None else (before or 0.0) + seconds

"""Task records: what became of each task of a kickoff, folded from what its runs report."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from windlass.kickoffs.states import TaskState
from windlass_crewside.messages import TaskEnded, TasksKnown, TaskStarted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from windlass.kickoffs.manifest import TaskDefinition

UNSTABLE = "unstable_task_description"


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """`started_at` and `finished_at` are Unix times in seconds, `execution_time` seconds: of all starts of the task, in
    earlier attempts too, but for one that is not over.
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
    output: str | None = None
    execution_time: float | None = None


@dataclass(frozen=True, slots=True)
class Warning_:  # noqa: N801 - Warning is a builtin
    code: str
    message: str
    task_id: str | None = None

    def to_json(self) -> dict[str, str]:
        told = {"code": self.code, "message": self.message, "task_id": self.task_id}
        return {name: value for name, value in told.items() if value is not None}


def pending_records(tasks: Sequence[TaskDefinition]) -> list[TaskRecord]:
    """The records of a kickoff that nothing has run of yet."""
    return [TaskRecord(at, task.task_id, task.key, task.name, task.agent) for at, task in enumerate(tasks)]


@dataclass(slots=True)
class TaskRecords:
    """The records of one run. `take_changed` gives those that changed since it was last asked."""

    registered: Sequence[TaskDefinition]
    by_position: dict[int, TaskRecord] = field(init=False)
    warnings: list[Warning_] = field(default_factory=list)
    _changed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.by_position = {record.position: record for record in pending_records(self.registered)}

    def remember(self, earlier: Iterable[TaskRecord]) -> None:
        """The records as earlier attempts have left them."""
        for record in earlier:
            self.by_position[record.position] = record

    def hear(self, message: TasksKnown | TaskStarted | TaskEnded) -> None:
        match message:
            case TasksKnown():
                self.know(message)
            case TaskStarted():
                self.start(message)
            case TaskEnded():
                self.end(message)

    def know(self, message: TasksKnown) -> None:
        """Compares the crew that was built for this run with the registered tasks, place by place."""
        for position, task in enumerate(message.tasks):
            if self._differs(position, task["key"]):
                record = self._unregistered(position, task["key"], task.get("name"), task.get("agent"))
                self._put(record)
                self._warn_of(record)

    def start(self, message: TaskStarted) -> None:
        if self._differs(message.position, message.key):
            record = self._unregistered(message.position, message.key, message.name, message.agent)
            self._put(record)
            if message.position < len(self.registered):  # else it is one that the run itself has made: a step, a plan
                self._warn_of(record)
        record = self.by_position[message.position]
        self._put(
            replace(
                record,
                state=TaskState.RUNNING,
                started_at=message.at,
                agent=message.agent or record.agent,
                # of an earlier start of the same task
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
                agent=message.agent or record.agent,
                execution_time=_sum(record.execution_time, message.seconds),
            )
        )

    def task_id(self, position: int | None) -> str | None:
        record = self.by_position.get(position) if position is not None else None
        return record.task_id if record else None

    def take_changed(self) -> list[TaskRecord]:
        changed = [self.by_position[position] for position in sorted(self._changed)]
        self._changed.clear()
        return changed

    def _put(self, record: TaskRecord) -> None:
        self.by_position[record.position] = record
        self._changed.add(record.position)

    def _differs(self, position: int, key: str) -> bool:
        record = self.by_position.get(position)
        return record is None or record.key != key

    def _unregistered(self, position: int, key: str, name: str | None, agent: str | None) -> TaskRecord:
        task_id = _free(name or key, (r.task_id for r in self.by_position.values() if r.position != position))
        return TaskRecord(position, task_id, key, name, agent, registered=False)

    def _warn_of(self, record: TaskRecord) -> None:
        self.warnings.append(
            Warning_(
                UNSTABLE,
                f"The description of task {record.task_id} is not the registered one: keep descriptions free of values "
                "that change from run to run (dates, secrets); pass them as inputs or read them in a tool.",
                record.task_id,
            )
        )


def _sum(before: float | None, seconds: float | None) -> float | None:
    return before if seconds is None else (before or 0.0) + seconds


def _free(wanted: str, taken: Iterable[str]) -> str:
    used, found, number = set(taken), wanted, 1
    while found in used:
        number += 1
        found = f"{wanted}-{number}"
    return found

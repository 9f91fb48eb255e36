from __future__ import annotations

import contextlib
import threading
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from windlass_child.crewai.capabilities import found
from windlass_child.journal.fingerprint import task_key
from windlass_child.protocol.messages import TaskEnded, TaskStarted
from windlass_child.protocol.truncation import beginning
from windlass_child.replacements import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from windlass_child.process.report import Report
    from windlass_child.protocol.fields import KnownTask


MOST_OF_NAME = 128 * 1024
"""Characters of a name that are kept until values of secrets in it are masked. `Redaction.message` cuts it then."""


def described(task: Any) -> KnownTask:
    """Returns a task in the form of messages and manifests."""
    # crewai overwrites the description when it fills in placeholders, and keeps the original beside it
    written = getattr(task, "_original_description", None) or task.description
    agent = getattr(task, "agent", None)
    name = None if task.name is None else beginning(task.name, MOST_OF_NAME)
    role = None if agent is None else beginning(agent.role.strip(), MOST_OF_NAME)
    return {"key": task_key(written), "name": name, "agent": role}


MOST_OTHERS = 5000
"""The server ends a run that reports twice as many tasks."""


class TaskFollower:
    """Turns a crew's task events into changes of its task records."""

    def __init__(self, tasks: list[Any], report: Report, first: int = 0) -> None:
        """`tasks` are those of the project's own crew. Tasks of other crews get the positions after them, from `first`
        on. Of these, MOST_OTHERS have a task record.
        """
        self._report = report
        self._tasks = list(tasks)
        self._positions = {str(task.id): position for position, task in enumerate(tasks)}
        self._free = max(first, len(self._tasks))
        self._began: dict[int, float] = {}
        self._over: set[int] = set()
        self._lock = threading.RLock()

    def follow(self, source: Any, event: Any) -> None:
        moves = {"task_started": self._started, "task_completed": self._completed, "task_failed": self._failed}
        move = moves.get(event.type)
        if move is not None:
            with self._lock:
                if str(source.id) in self._positions or len(self._positions) < len(self._tasks) + MOST_OTHERS:
                    move(source, event)

    def position(self, task: Any) -> int:
        """Returns the position of the task's record. A task of another crew takes the next free position."""
        with self._lock:
            if str(task.id) not in self._positions:
                self._positions[str(task.id)] = self._free
                self._free += 1
            return self._positions[str(task.id)]

    def known_position(self, task: Any) -> int | None:
        """Returns the position of the task's record, or None if the task has none."""
        with self._lock:
            return self._positions.get(str(getattr(task, "id", None)))

    def pass_over(self, positions: Iterable[int | None]) -> None:
        """Reserves positions of earlier attempts' task records, so that no other task takes them."""
        self._free = max([self._free, *(position + 1 for position in positions if position is not None)])

    def forget(self, tasks: list[Any]) -> None:
        """Releases the records of tasks that are about to run once more. The next run has task records of its own."""
        with self._lock:
            for task in tasks:
                self._positions.pop(str(task.id), None)

    def restored(self, task: Any, position: int, *, over: bool) -> None:
        """Assigns the task record of an earlier attempt to a task.

        This attempt reports the task again, unless the task is `over`.
        """
        with self._lock:
            self._positions[str(task.id)] = position
            if over:
                self._over.add(position)

    def skip_the_rest(self) -> None:
        with self._lock:
            self._skip_until(len(self._tasks), time.time())

    def _started(self, task: Any, event: Any) -> None:
        position = self.position(task)
        at = event.timestamp.timestamp()
        if position < len(self._tasks):
            self._skip_until(position, at)
        self._began[position] = at
        self._report.send(TaskStarted(position, **described(task), at=at))

    def _completed(self, task: Any, event: Any) -> None:
        position, at = self._end(task, event)
        output = event.output
        seconds = at - self._began[position] if position in self._began else None
        self._report.send(
            TaskEnded(position, "completed", at, output.raw, beginning(output.agent.strip(), MOST_OF_NAME), seconds)
        )

    def _failed(self, task: Any, event: Any) -> None:
        position, at = self._end(task, event)
        self._report.send(TaskEnded(position, "failed", at))

    def _end(self, task: Any, event: Any) -> tuple[int, float]:
        position = self.position(task)
        self._over.add(position)
        return position, event.timestamp.timestamp()

    def _skip_until(self, position: int, at: float) -> None:
        """Reports conditional tasks before `position` that did not start as skipped. crewai has no event for them."""
        for passed in range(position):
            if passed not in self._began and passed not in self._over and conditional(self._tasks[passed]):
                self._over.add(passed)
                # crewai has filled in its placeholders by now
                agent = described(self._tasks[passed])["agent"]
                self._report.send(TaskEnded(passed, "skipped", at, agent=agent))


@contextlib.contextmanager
def followed_without_events(follower: TaskFollower | None) -> Iterator[None]:
    """Reports the tasks that run inside the `with` block, where crewai has no events for that."""
    if follower is None or found()["events"]:
        yield
        return

    running: set[Any] = set()

    def following(run: Callable[..., Any]) -> Callable[..., Any]:
        def run_and_report(task: Any, *arguments: Any, **named: Any) -> Any:
            if task.id in running:  # a task may run anew within itself, for its guardrail
                return run(task, *arguments, **named)
            running.add(task.id)
            follower.follow(task, Moment("task_started"))
            try:
                output = run(task, *arguments, **named)
            except BaseException:
                follower.follow(task, Moment("task_failed"))
                raise
            finally:
                running.discard(task.id)
            follower.follow(task, Moment("task_completed", output))
            return output

        return run_and_report

    with replaced("crewai:Task._execute_core", following):
        yield


class Moment:
    """Stands for an event of a task."""

    def __init__(self, kind: str, output: Any = None) -> None:
        self.type = kind
        self.output = output
        self.timestamp = datetime.now(timezone.utc)


def conditional(task: Any) -> bool:
    return hasattr(task, "should_execute")

from __future__ import annotations

import hashlib
import threading
import time
from typing import TYPE_CHECKING, Any

from windlass_crewside.messages import KnownTask, TaskEnded, TaskStarted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windlass_crewside.report import Report


def task_key(description: str) -> str:
    """MD5 of a description as written. Not crewai's `Task.key`, which holds the expected output too."""
    return hashlib.md5(description.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def described(task: Any) -> KnownTask:
    """A task as messages and manifests tell of it."""
    # crewai fills in placeholders in place, and keeps what was written
    written = getattr(task, "_original_description", None) or task.description
    agent = getattr(task, "agent", None)
    return {"key": task_key(written), "name": task.name, "agent": agent.role.strip() if agent is not None else None}


class TaskFollower:
    """Turns a crew's task events into the moves of its task records."""

    def __init__(self, tasks: list[Any], report: Report) -> None:
        self._report = report
        self._tasks = list(tasks)
        self._positions = {str(task.id): position for position, task in enumerate(tasks)}
        self._free = len(self._tasks)
        self._began: dict[int, float] = {}
        self._over: set[int] = set()
        self._lock = threading.RLock()

    def follow(self, source: Any, event: Any) -> None:
        moves = {"task_started": self._started, "task_completed": self._completed, "task_failed": self._failed}
        move = moves.get(event.type)
        if move is not None:
            with self._lock:
                move(source, event)

    def position(self, task: Any) -> int:
        """Of its task record: one that is not of this crew has the next free."""
        with self._lock:
            if str(task.id) not in self._positions:
                self._positions[str(task.id)] = self._free
                self._free += 1
            return self._positions[str(task.id)]

    def pass_over(self, positions: Iterable[int | None]) -> None:
        """These have task records of earlier attempts, which are no other task's."""
        self._free = max([self._free, *(position + 1 for position in positions if position is not None)])

    def forget(self, tasks: list[Any]) -> None:
        """They are about to be run once more, and to have other task records."""
        with self._lock:
            for task in tasks:
                self._positions.pop(str(task.id), None)

    def restored(self, task: Any, position: int, *, over: bool) -> None:
        """An earlier attempt has told of it, and if it is not `over` this one tells of it again."""
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
        self._report.send(TaskEnded(position, "completed", at, output.raw, output.agent.strip(), seconds))

    def _failed(self, task: Any, event: Any) -> None:
        position, at = self._end(task, event)
        self._report.send(TaskEnded(position, "failed", at))

    def _end(self, task: Any, event: Any) -> tuple[int, float]:
        position = self.position(task)
        self._over.add(position)
        return position, event.timestamp.timestamp()

    def _skip_until(self, position: int, at: float) -> None:
        """A conditional task that was passed over was skipped: crewai has no event for it."""
        for passed in range(position):
            if passed not in self._began and passed not in self._over and conditional(self._tasks[passed]):
                self._over.add(passed)
                # by now crewai has filled in its placeholders, too
                agent = described(self._tasks[passed])["agent"]
                self._report.send(TaskEnded(passed, "skipped", at, agent=agent))


def conditional(task: Any) -> bool:
    return hasattr(task, "should_execute")

"""What the rows of kickoffs should be after any sequence of moves, in a few lines of Python each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windlass.kickoffs.states import MOVES, State, TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from uuid import UUID

    from windlass.store.claiming import Claimed

MAX_LOSSES = 1
TASKS = 2

Queue = tuple["UUID", str]
"""Of the kickoffs of a deployment with one concurrency key."""


@dataclass
class Expected:
    """What a kickoff's rows should be. `later`: it waits for its time; `silent`: its lease has ended."""

    deployment: UUID
    key: str | None = None
    priority: int = 0
    state: State = State.PENDING
    attempt: int = 0
    losses: int = 0
    retries: int = 0
    worker: UUID | None = None
    silent: bool = False
    later: bool = False
    to_stop: bool = False
    events: list[tuple[int, int]] = field(default_factory=list)
    tasks: list[TaskState] = field(default_factory=lambda: [TaskState.PENDING_RUN] * TASKS)
    journal: list[int] = field(default_factory=list)
    ends: list[str | None] = field(default_factory=list)
    """How each attempt ended, None for one that has not."""

    @property
    def open(self) -> bool:
        return not self.state.ended

    @property
    def queue(self) -> Queue | None:
        return (self.deployment, self.key) if self.key is not None else None

    @property
    def task_rows(self) -> list[TaskState]:
        """None are there until it is claimed, or ends without."""
        return self.tasks if self.attempt or self.state.ended else []

    def claim(self, worker: UUID) -> None:
        self._move(State.STARTED)
        self.worker, self.attempt = worker, self.attempt + 1
        self.ends.append(None)

    def tell(self, event: tuple[int, int], positions: list[int], state: TaskState | None) -> None:
        """What a run wrote: an event with its attempt, and tasks that are in this state now."""
        self.events.append(event)
        for position in positions:
            self.tasks[position] = state or self.tasks[position]
            self.journal += [position] if state is TaskState.COMPLETED else []
            self.losses = 0 if state is TaskState.COMPLETED else self.losses

    def settle(self, state: State) -> None:
        state = State.CANCELLED if self.to_stop else state
        self._leave(state, state)

    def lose(self) -> None:
        """It was lost with its worker or its process."""
        again = State.PENDING if self.losses < MAX_LOSSES else State.FAILED
        self.losses += 1
        self._give_back(again, "lost")

    def release(self) -> None:
        self._give_back(State.PENDING, "released")

    def retry(self) -> None:
        self.retries += 1
        self._give_back(State.PENDING, "retried")

    def stop(self) -> None:
        if self.state is State.PENDING:
            self._leave(State.CANCELLED, State.CANCELLED)
        self.to_stop = self.to_stop or self.state is State.STARTED

    def _give_back(self, state: State, ended_as: str) -> None:
        state = State.CANCELLED if self.to_stop else state
        self._leave(state, ended_as if state is State.PENDING else state)

    def _leave(self, state: State, ended_as: str) -> None:
        if self.state is State.STARTED:
            self.ends[-1] = str(ended_as)
        self._move(state)
        self.worker, self.silent, self.later = None, False, False
        self.tasks = [left(task, ended=state.ended) for task in self.tasks]

    def _move(self, state: State) -> None:
        assert state in MOVES[self.state], f"{self.state} -> {state} is no move"
        self.state = state


def left(task: TaskState, *, ended: bool) -> TaskState:
    """A task of a run that is over: what is finished stays so, all else runs again or never."""
    if task is TaskState.COMPLETED:
        return task
    if not ended:
        return TaskState.PENDING_RUN
    return TaskState.FAILED if task is TaskState.RUNNING else TaskState.SKIPPED


class Model(dict["UUID", Expected]):
    """`caps` say how many kickoffs of a deployment may run at once; of those in `paused` none is claimed."""

    def __init__(self, caps: dict[UUID, int]) -> None:
        super().__init__()
        self.caps = caps
        self.paused: set[UUID] = set()

    @property
    def open(self) -> int:
        return sum(one.open for one in self.values())

    def accept(self, kickoff: UUID, expected: Expected, strategy: str) -> bool:
        """False for one that is refused as another one has its key."""
        others = [one for one in self.values() if one.open and one.queue and one.queue == expected.queue]
        if others and strategy == "reject":
            return False
        for other in others if strategy == "cancel_running" else ():
            other.stop()
        self[kickoff] = expected
        return True

    def is_current(self, run: Claimed) -> bool:
        return self[run.id].state is State.STARTED and self[run.id].attempt == run.attempt

    def of(self, worker: UUID) -> dict[UUID, Expected]:
        return {kickoff: one for kickoff, one in self.items() if one.worker == worker}

    def running(self) -> Counter[UUID]:
        return Counter(one.deployment for one in self.values() if one.state is State.STARTED)

    def running_of_queues(self) -> Counter[Queue]:
        return Counter(one.queue for one in self.values() if one.state is State.STARTED and one.queue)

    def next_of(self, deployment: UUID, ready: Collection[UUID]) -> list[UUID]:
        """What a claim of many slots should take, in its order, when these are ready."""
        if deployment in self.paused:
            return []
        held = self.running_of_queues()
        room = self.caps[deployment] - self.running()[deployment]
        waiting = (
            kickoff
            for kickoff, one in self.items()
            if kickoff in ready and one.deployment == deployment and not held[one.queue]  # type: ignore[index]  # None counts as 0
        )
        return sorted(waiting, key=lambda kickoff: (-self[kickoff].priority, kickoff))[:room]

    def claim(self, claimed: Iterable[Claimed], slots: int, ready: Collection[UUID], worker: UUID) -> None:
        """Asserts that it was right to claim these. How deployments share the slots is another test's matter."""
        ids = [one.id for one in claimed]
        wanted = {deployment: self.next_of(deployment, ready) for deployment in self.caps}
        assert len(ids) == min(slots, sum(map(len, wanted.values())))
        for deployment, first in wanted.items():
            mine = {kickoff for kickoff in ids if self[kickoff].deployment == deployment}
            assert mine == set(first[: len(mine)])
        for one in claimed:
            self[one.id].claim(worker)
            assert one.attempt == self[one.id].attempt

    def waits_for_nothing(self) -> set[UUID]:
        """Kickoffs without a key that are to be ready."""
        return {
            kickoff for kickoff, one in self.items() if one.state is State.PENDING and not one.later and not one.key
        }

    def free_queues(self) -> dict[Queue, set[UUID]]:
        """Those of which none runs, each with the kickoffs of which one should have its turn."""
        held = self.running_of_queues()
        free: dict[Queue, set[UUID]] = {}
        for kickoff, one in self.items():
            if one.queue and not held[one.queue] and one.state is State.PENDING and not one.later:
                free.setdefault(one.queue, set()).add(kickoff)
        return free

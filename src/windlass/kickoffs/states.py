"""Defines the states of kickoffs and task records, the allowed moves of a kickoff, and its attempts.

docs/concepts/states.md has the diagram.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


class State(StrEnum):
    PENDING = "PENDING"
    STARTED = "STARTED"
    PENDING_HUMAN_INPUT = "PENDING_HUMAN_INPUT"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        return not MOVES[self]

    @property
    def state_on_the_wire(self) -> str:
        """Returns one of the five states that clients know. A cancelled or timed-out kickoff is FAILED there, with a
        reason.
        """
        return "FAILED" if self in {State.TIMED_OUT, State.CANCELLED} else self.value

    @property
    def status_on_the_wire(self) -> str:
        return STATUS_ON_THE_WIRE[self]


MOVES: dict[State, frozenset[State]] = {
    State.PENDING: frozenset({State.STARTED, State.CANCELLED, State.FAILED, State.TIMED_OUT}),
    State.STARTED: frozenset(
        {
            State.SUCCESS,
            State.FAILED,
            State.TIMED_OUT,
            State.CANCELLED,
            State.PENDING,
            State.PENDING_HUMAN_INPUT,
        }
    ),
    State.PENDING_HUMAN_INPUT: frozenset(
        {State.PENDING, State.STARTED, State.FAILED, State.TIMED_OUT, State.CANCELLED}
    ),
    State.SUCCESS: frozenset(),
    State.FAILED: frozenset(),
    State.TIMED_OUT: frozenset(),
    State.CANCELLED: frozenset(),
}

STATUS_ON_THE_WIRE: dict[State, str] = {
    State.PENDING: "running",
    State.STARTED: "running",
    State.PENDING_HUMAN_INPUT: "pending_human_input",
    State.SUCCESS: "completed",
    State.FAILED: "error",
    State.TIMED_OUT: "error",
    State.CANCELLED: "error",
}


class Reason(StrEnum):
    """Names why a kickoff ended without success."""

    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    LIMIT = "limit"
    CRASHED = "crashed"
    LOST = "lost"
    SECRETS = "secrets"
    ERROR = "error"


AttemptEnd = Literal["SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "lost", "released", "retried", "paused"]
"""The final state of the kickoff, or the reason why the kickoff went on without this attempt."""
RETRIED: AttemptEnd = "retried"


@dataclass(frozen=True, slots=True)
class Attempt:
    """Describes one run of a kickoff, on the machine `host`. `ended_at`, `ended_as` and `why` are None while it runs.

    `restored` counts the journal entries that existed when the attempt began. `from_journal` are the tasks that the
    attempt took from the journal. `ran` are the tasks that it ran and that no later attempt ran again. Both hold the
    names of the tasks, or the ids of tasks without a name.
    """

    attempt: int
    started_at: datetime
    host: str
    restored: int
    ended_at: datetime | None
    ended_as: AttemptEnd | None
    why: str | None
    from_journal: Sequence[str]
    ran: Sequence[str]


class TaskState(StrEnum):
    PENDING_RUN = "pending_run"
    RUNNING = "running"
    PENDING_HUMAN_INPUT = "pending_human_input"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"

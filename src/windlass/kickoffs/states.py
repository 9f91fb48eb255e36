"""The states of a kickoff and of a task record, and the only moves between them (drawn in docs/states.md)."""

from __future__ import annotations

from enum import StrEnum


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
        """Clients know five states: a cancelled or timed-out kickoff is FAILED there, with its reason beside it."""
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
    """Why a kickoff ended badly."""

    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    LIMIT = "limit"
    CRASHED = "crashed"
    LOST = "lost"
    SECRETS = "secrets"
    ERROR = "error"


class TaskState(StrEnum):
    PENDING_RUN = "pending_run"
    RUNNING = "running"
    PENDING_HUMAN_INPUT = "pending_human_input"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"

from __future__ import annotations

import pytest

from windlass.kickoffs.states import MOVES, STATUS_ON_THE_WIRE, State

pytestmark = pytest.mark.unit


DESIGNED = """
PENDING -> STARTED | CANCELLED | FAILED | TIMED_OUT
STARTED -> SUCCESS | FAILED | TIMED_OUT | CANCELLED | PENDING | PENDING_HUMAN_INPUT
PENDING_HUMAN_INPUT -> PENDING | STARTED | FAILED | TIMED_OUT | CANCELLED
"""


def test_the_moves_are_the_designed_ones() -> None:
    designed = {
        (State(source.strip()), State(target.strip()))
        for line in DESIGNED.strip().splitlines()
        for source, _, targets in [line.partition("->")]
        for target in targets.split("|")
    }
    assert {(source, target) for source, targets in MOVES.items() for target in targets} == designed


def test_every_state_has_its_moves_and_its_words() -> None:
    assert set(MOVES) == set(STATUS_ON_THE_WIRE) == set(State)


def test_every_state_can_be_reached() -> None:
    reached = {State.PENDING}
    while more := {target for state in reached for target in MOVES[state]} - reached:
        reached |= more
    assert reached == set(State)


def test_what_has_ended_moves_no_more() -> None:
    ended = {State.SUCCESS, State.FAILED, State.TIMED_OUT, State.CANCELLED}
    assert {state for state in State if state.ended} == ended


@pytest.mark.parametrize(
    ("state", "on_the_wire", "status"),
    [
        (State.PENDING, "PENDING", "running"),
        (State.STARTED, "STARTED", "running"),
        (State.PENDING_HUMAN_INPUT, "PENDING_HUMAN_INPUT", "pending_human_input"),
        (State.SUCCESS, "SUCCESS", "completed"),
        (State.FAILED, "FAILED", "error"),
        (State.TIMED_OUT, "FAILED", "error"),
        (State.CANCELLED, "FAILED", "error"),
    ],
)
def test_clients_know_five_states_and_four_words(state: State, on_the_wire: str, status: str) -> None:
    assert (state.state_on_the_wire, state.status_on_the_wire) == (on_the_wire, status)

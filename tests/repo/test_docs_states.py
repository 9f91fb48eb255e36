from __future__ import annotations

import re
from pathlib import Path

import pytest

from windlass.kickoffs.states import MOVES, State, TaskState

pytestmark = pytest.mark.unit


PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "states.md").read_text("utf-8")


def test_the_diagram_draws_the_table_of_moves_and_nothing_else() -> None:
    drawn = {(source, target) for source, target in re.findall(r"^    (\w+) --> (\w+)$", PAGE, re.MULTILINE)}
    assert drawn == {(source.value, target.value) for source, targets in MOVES.items() for target in targets}


def test_the_table_has_every_state_with_its_words_on_the_wire() -> None:
    told = re.findall(r"^\| `(\w+)` \| .* \| `(\w+)` \| `(\w+)` \|$", PAGE, re.MULTILINE)
    assert told == [(state.value, state.state_on_the_wire, state.status_on_the_wire) for state in State]


def test_every_state_of_a_task_record_is_named() -> None:
    assert all(f"`{state}`" in PAGE for state in TaskState)

"""Crews and flows that ask a person, on each release of crewai: the process waits for the answer, or the run pauses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.asking import (
    ASKS,
    BOTH,
    MODES,
    NESTED,
    REVIEW,
    ROUNDS,
    answered,
    kickoff_in,
    kickoff_of_flow,
)
from windlass_child.protocol.messages import Asked, Failed, Inspected, Succeeded

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenZygote

ABSENT = (
    "has no BaseLLM in crewai",
    "'Crew' object has no attribute 'akickoff'",
    "'CrewOutput' object has no attribute 'result'",
    "has no module crewai.flow.human_feedback",
    "'Asks' object has no attribute 'ask'",
)
"""What the code of these tests uses and some releases do not have."""


def is_absent(end: Asked | Succeeded | Failed | Inspected) -> bool:
    return isinstance(end, Failed) and any(words in end.message for words in ABSENT)


@pytest.mark.parametrize("mode", MODES)
def test_each_way_to_run_a_crew_asks(zygote: DrivenZygote, tmp_path: Path, mode: str) -> None:
    kickoff = kickoff_in(zygote, tmp_path, mode)
    end = answered(kickoff, "as [other]", "")
    if not is_absent(end):
        assert isinstance(end, Succeeded), end
        assert end.output.partition(" ")[0] == ("other" if mode == "async task last" else "c")
        assert {name: kickoff.calls[name] for name in ("a", "b", "other")} == {"a": 1, "b": 1, "other": 1}


@pytest.mark.parametrize("mode", ["max_execution_time", "akickoff with max_execution_time"])
def test_a_person_may_take_longer_than_the_agent(zygote: DrivenZygote, tmp_path: Path, mode: str) -> None:
    kickoff = kickoff_in(zygote, tmp_path, mode, max_execution_time=3)
    child = kickoff.attempt()
    asked = kickoff.next_of(child, 0)
    if is_absent(asked):
        return
    assert isinstance(asked, Asked), asked
    since = time.monotonic()
    zygote.until(lambda: time.monotonic() > since + 3.5)
    kickoff.answer(asked)
    assert (child if asked.waits else kickoff.attempt()).answer().output[:1] == "c"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("code", "answers", "expected"),
    [
        (REVIEW, ["not_approved"], '["discarded", "not_approved"]'),
        (ROUNDS, ["again", "again", "done"], '[3, "round3 of attempt'),
        (BOTH, ["same", "same"], '{"left": "same", "right": "same"}'),
        (ASKS, ["Rye", "noon"], "Rye at noon"),
        (NESTED, ["as [other]", ""], "other of attempt"),
    ],
    ids=["choice", "rounds", "side by side", "ask", "crew in a method"],
)
def test_each_way_of_a_flow_asks(
    zygote: DrivenZygote, tmp_path: Path, code: str, answers: list[str], expected: str
) -> None:
    kickoff = kickoff_of_flow(zygote, tmp_path, code)
    end = answered(kickoff, *answers)
    if not is_absent(end):
        assert isinstance(end, Succeeded), end
        assert end.output.startswith(expected)

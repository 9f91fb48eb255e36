from __future__ import annotations

from typing import Any

import pytest

from windlass.kickoffs.declared_settings import BadSetting
from windlass.kickoffs.outcome import Outcome, failure, lost
from windlass.kickoffs.retries import Retries
from windlass.kickoffs.states import Reason, State

pytestmark = pytest.mark.unit


ERROR = failure(Reason.ERROR, "it broke")


def test_nothing_is_tried_again_unless_the_project_says_so() -> None:
    assert Retries().pause(ERROR, 0) is None


def test_a_failure_is_tried_again_as_often_as_is_said() -> None:
    retries = Retries(attempts=3)
    assert [retries.pause(ERROR, done) is not None for done in range(4)] == [True, True, False, False]


def test_the_pause_doubles_up_to_its_longest() -> None:
    retries = Retries(attempts=100, backoff=1.0, longest_backoff=30.0)
    for done, usual in enumerate([1, 2, 4, 8, 16, 30, 30]):
        pause = retries.pause(ERROR, done)
        assert pause is not None
        assert 0.8 * usual <= pause <= 1.2 * usual
    assert retries.pause(ERROR, 98) is not None


def test_pauses_differ() -> None:
    retries = Retries(attempts=2)
    assert len({retries.pause(ERROR, 0) for _ in range(20)}) > 1


@pytest.mark.parametrize(
    "outcome",
    [
        failure(Reason.LIMIT, "too much"),
        failure(Reason.ERROR, "the inputs were refused", final=True),
        Outcome(State.CANCELLED, reason=Reason.CANCELLED),
        Outcome(State.TIMED_OUT, reason=Reason.TIMED_OUT),
        Outcome(State.SUCCESS, output="done"),
        lost("gone"),
    ],
    ids=["another reason", "final", "stopped", "timed out", "success", "lost"],
)
def test_no_other_end_is_tried_again(outcome: Outcome) -> None:
    assert Retries(attempts=9).pause(outcome, 0) is None


def test_the_reasons_can_be_chosen() -> None:
    retries = Retries.parse({"attempts": 2, "reasons": ["limit"]})
    assert retries.pause(failure(Reason.LIMIT, "too much"), 0) is not None
    assert retries.pause(ERROR, 0) is None


def test_what_is_written_down_is_read_back() -> None:
    retries = Retries(attempts=4, backoff=0.5, longest_backoff=9.0, reasons=(Reason.CRASHED,))
    assert Retries.parse(retries.to_json()) == retries
    assert Retries().to_json() == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"attempt": 2}, "there is no retry setting 'attempt'"),
        ({"attempts": 0}, "a whole number from 1 to 100"),
        ({"attempts": True}, "a whole number from 1 to 100"),
        ({"attempts": 2.0}, "a whole number from 1 to 100"),
        ({"backoff": -1}, "must be seconds"),
        ({"backoff": float("nan")}, "must be seconds"),
        ({"longest_backoff": "1 h"}, "must be seconds"),
        ({"reasons": "error"}, "a list of error, crashed, limit"),
        ({"reasons": ["timed_out"]}, "a list of error, crashed, limit"),
        ({"reasons": [["error"]]}, "a list of error, crashed, limit"),
    ],
)
def test_what_can_not_be_meant_is_refused_in_words(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSetting, match=words):
        Retries.parse(given)

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import pytest

from cli.fake_crew import completed, failed, running, task, waiting
from windlass.cli.why_text import AFTER_A_BAD_END, WHILE_IT_WAITS, explain, lapse
from windlass.kickoffs.states import Reason
from windlass.kickoffs.waiting import Code

pytestmark = pytest.mark.unit


AT = datetime(2026, 1, 2, 3, 4, 20, tzinfo=UTC)


def command(name: str, *options: str) -> str:
    return " ".join(["windlass", name, "ID", *options])


def test_a_kickoff_in_the_queue_says_what_it_waits_for_and_since_when() -> None:
    queued = waiting("slot", "a free slot: 4 of 4 are taken; it is the 3rd in the queue of this crew", 3)
    assert explain(queued, AT, command) == [
        "It waits for a free slot: 4 of 4 are taken; it is the 3rd in the queue of this crew.",
        "It was accepted 15 s ago.",
        WHILE_IT_WAITS["slot"],
    ]


def test_there_are_words_for_whatever_a_kickoff_waits_for() -> None:
    assert set(WHILE_IT_WAITS) == set(get_args(Code))
    for code, words in WHILE_IT_WAITS.items():
        status = waiting(code, "something")
        wanted = words.replace("{status --full}", "windlass status ID --full").replace("ITS_ID", status["kickoff_id"])
        assert explain(status, AT, command)[-1] == wanted


def test_a_kickoff_that_waits_after_a_loss_says_how_often_it_was_begun() -> None:
    lost = waiting("retry", "its next try", attempt=2, started_at="2026-01-02T03:04:06Z")
    assert "It was started 2 times before." in explain(lost, AT, command)
    assert "It was started once before." in explain({**lost, "attempt": 1}, AT, command)


def test_a_wait_that_nobody_has_words_for_is_told_by_the_state() -> None:
    assert explain({**waiting("x", ""), "waiting_for": None}, AT, command)[0] == "It waits for a worker."
    human = {**running(task("a", "pending_human_input")), "state": "PENDING_HUMAN_INPUT"}
    assert explain(human, AT, command)[0] == "It waits for a human."


def test_a_run_says_its_task_since_when_how_far_and_its_warnings() -> None:
    tasks = (task("a", "completed"), task("b", "running", started_at="2026-01-02T03:04:10Z"))
    stalled = {"code": "stalled", "message": "No sign of life for 300 s."}
    assert explain(running(*tasks, attempt=2, warnings=[stalled]), AT, command) == [
        "It runs the task b, by Researcher, for 10 s now.",
        "1 of 2 tasks are done.",
        "This is attempt 2. See how the earlier attempts ended: windlass status ID --full",
        "Warning: No sign of life for 300 s.",
    ]


def test_a_run_of_one_task_speaks_of_one() -> None:
    assert "0 of 1 task is done." in explain(running(task("a", "running")), AT, command)


def test_a_run_between_two_tasks_says_so() -> None:
    assert explain(running(), AT, command) == ["It runs, between two tasks or before the first, for 14 s now."]


@pytest.mark.parametrize("code", ["zygote", "import"])
def test_a_run_whose_process_is_being_started_is_starting(code: str) -> None:
    starting = running(waiting_for={"code": code, "message": "a process to be forked from", "place": None})
    told = explain(starting, AT, command)
    assert told[0] == "It is starting: a process to be forked from."
    assert WHILE_IT_WAITS[code] in told


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "less than 1 s"),
        (0.4, "less than 1 s"),
        (1, "1 s"),
        (119, "119 s"),
        (120, "2 minutes"),
        (7199, "119 minutes"),
        (7200, "2 hours"),
        (172799, "47 hours"),
        (27978922, "323 days"),
    ],
)
def test_a_lapse_is_told_as_exactly_as_a_person_wants_it(seconds: float, words: str) -> None:
    assert lapse(seconds) == words


def test_a_good_end_says_how_to_see_the_output() -> None:
    assert explain(completed(), AT, command) == ["It succeeded after 4.2 s. See its output: windlass status ID"]


@pytest.mark.parametrize("reason", list(Reason))
def test_a_bad_end_says_its_reason_its_task_and_what_to_do_next(reason: Reason) -> None:
    told = explain(failed(task("a", "completed"), task("b", "failed"), reason=reason, error="so it is"), AT, command)
    assert told == [
        f"It failed after 1.0 s ({reason}): so it is",
        "The failed task is b.",
        AFTER_A_BAD_END[reason].replace("{logs}", "windlass logs ID"),
    ]
    assert told[-1]


def test_an_answer_without_the_members_that_may_be_missing_is_still_explained() -> None:
    assert explain({"state": "STARTED"}, AT, command) == ["It runs, between two tasks or before the first."]
    assert explain({"state": "PENDING"}, AT, command) == ["It waits for a worker."]
    assert explain({"state": "SUCCESS"}, AT, command) == ["It succeeded. See its output: windlass status ID"]
    assert explain({"state": "FAILED"}, AT, command)[0] == "It failed (error): the server gave no reason"

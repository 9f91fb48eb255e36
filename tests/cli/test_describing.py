from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from cli.fake_crew import KICKOFF, attempt, completed, failed, running, task, waiting
from windlass.cli.show_text import ENDS, describe
from windlass.kickoffs.states import AttemptEnd

pytestmark = pytest.mark.unit


AT = datetime(2026, 1, 2, 3, 4, 20, tzinfo=UTC)
USED = {"prompt_tokens": 900, "completion_tokens": 334, "total_tokens": 1234, "successful_requests": 4}
FROM, TO = "2026-01-02T03:04:06.000000Z", "2026-01-02T03:04:08.500000Z"


def command(name: str, *options: str) -> str:
    return " ".join(["windlass", name, "ID", *options])


def attempts_told(*attempts: dict[str, Any]) -> list[str]:
    told = describe(running(task("plan", "completed")), attempts, AT, command)
    return told[told.index("Attempts") + 1 :]


def test_a_kickoff_that_went_on_after_a_loss_is_told_as_a_whole() -> None:
    tasks = (
        task("plan", "completed", started_at=FROM, finished_at=TO),
        task(None, "completed", started_at=FROM, finished_at=TO),
        task("write", "skipped"),
    )
    why = "its worker's lease ended."
    lost = attempt(1, "lost", why, ran=["plan"])
    again = attempt(2, "SUCCESS", restored=1, from_journal=["plan"], ran=["5d41402a"])
    status = completed(*tasks, token_usage=USED, finished_at="2026-01-02T03:04:18.500000Z", attempt=2)
    assert describe(status, [lost, again], AT, command) == [
        f"Kickoff {KICKOFF}",
        "It succeeded after 4.2 s. See its output: windlass status ID",
        "Accepted 2026-01-02 03:04:05 UTC, started 2026-01-02 03:04:06 UTC, ended 2026-01-02 03:04:18 UTC.",
        "Tokens: 1,234 (900 of prompts, 334 of answers), in 4 model calls.",
        "",
        "Tasks",
        "  plan    2026-01-02 03:04:06 UTC  completed in 2.5 s",
        "  task 2  2026-01-02 03:04:06 UTC  completed in 2.5 s",
        "  write   -                        skipped",
        "",
        "Attempts",
        "  1. Started 2026-01-02 03:04:06 UTC on host-1: after 12.5 s it was lost: its worker's lease ended.",
        "     It ran plan.",
        "  2. Started 2026-01-02 03:04:06 UTC on host-2: after 12.5 s it succeeded.",
        "     plan came from the journal. It ran task 2.",
    ]


def test_an_attempt_that_runs_says_for_how_long() -> None:
    assert attempts_told(attempt(ran=["plan"])) == [
        "  1. Started 2026-01-02 03:04:06 UTC on host-1: it has run for 14.0 s and continues.",
        "     It ran plan.",
    ]


@pytest.mark.parametrize("ended_as", get_args(AttemptEnd))
def test_there_are_words_for_each_way_in_which_an_attempt_ends(ended_as: str) -> None:
    told = attempts_told(attempt(1, ended_as, "so it is"))
    assert told == [f"  1. Started 2026-01-02 03:04:06 UTC on host-1: after 12.5 s it {ENDS[ended_as]}: so it is."]


def test_no_words_are_there_for_ends_that_there_are_not() -> None:
    assert set(ENDS) == set(get_args(AttemptEnd))


def test_an_end_that_this_command_does_not_know_is_told_by_its_name() -> None:
    assert attempts_told(attempt(1, "moved"))[0].endswith("after 12.5 s it moved.")


def test_the_error_of_the_kickoff_is_told_once() -> None:
    told = "\n".join(describe(failed(error="no tea"), [attempt(1, "FAILED", "no tea")], AT, command))
    assert told.count("no tea") == 1
    assert told.endswith("after 12.5 s it failed.")


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"restored": 3, "from_journal": ["a", "b", "c"]}, "a, b and c came from the journal."),
        ({"restored": 2, "from_journal": ["a", "b"], "ran": ["c"]}, "a and b came from the journal. It ran c."),
        ({"restored": 1}, "1 finished step came from the journal."),
        ({"restored": 2}, "2 finished steps came from the journal."),
        ({}, "The journal was empty, so it started at the beginning."),
        (
            {"restored": 12, "from_journal": list("abcdefghijkl")},
            "a, b, c, d, e, f, g, h, i, j and 2 more came from the journal.",
        ),
    ],
)
def test_a_later_attempt_says_what_it_took_from_the_journal(members: dict[str, Any], words: str) -> None:
    assert attempts_told(attempt(2, **members))[1] == f"     {words}"


def test_a_kickoff_that_waits_says_for_what_and_has_no_attempts() -> None:
    told = describe(waiting("slot", "a free slot"), [], AT, command)
    assert told[:3] == [f"Kickoff {KICKOFF}", "It waits for a free slot.", "It was accepted 15 s ago."]
    assert "Accepted 2026-01-02 03:04:05 UTC." in told
    assert told[-3:] == ["", "Tasks", "  research  -  pending run"]


def test_attempts_of_which_nothing_is_known_are_told_so() -> None:
    assert describe(completed(), [], AT, command)[-2:] == ["Attempts", "  The attempts are not recorded."]


def test_an_answer_without_the_members_that_may_be_missing_is_still_told() -> None:
    told = describe(
        {"state": "STARTED", "attempt": 1}, [{"attempt": 1}, {"attempt": 2, "ended_as": "lost"}], AT, command
    )
    assert "it has run for some time and continues." in told[-3]
    assert "after some time it was lost." in told[-2]

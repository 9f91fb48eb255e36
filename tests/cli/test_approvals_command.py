from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cli.fake_crew import problem
from cli.fake_server import FakeServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.the_command import Command

QUESTION, KICKOFF = "0199bbbb-0000-7000-8000-000000000002", "0199bbbb-0000-7000-8000-000000000003"
ASKED: dict[str, Any] = {
    "id": QUESTION,
    "kickoff_id": KICKOFF,
    "deployment": "tea",
    "state": "waiting",
    "task": "review",
    "method": None,
    "question": "Is it good?\nOr not?",
    "choices": [],
    "user": None,
    "asked_at": "2026-01-15T09:30:00Z",
    "expires_at": None,
    "on_timeout": "fail",
    "answered_at": None,
    "answered_by": None,
    "approved": None,
    "feedback": None,
}
DETAILS = {**ASKED, "draft": "# A draft", "draft_length": 9}


@pytest.fixture
def server() -> Iterator[FakeServer]:
    server = FakeServer()
    server.answers |= {
        "GET approvals": {"items": [ASKED], "next_cursor": None},
        f"GET approvals/{QUESTION}": DETAILS,
        f"POST approvals/{QUESTION}/answer": DETAILS,
    }
    server.open()
    yield server
    server.close()


@pytest.fixture
def windlass(windlass: Command, server: FakeServer) -> Command:
    windlass.environment |= server.variables
    return windlass


def test_what_waits_is_a_table_or_json(windlass: Command, server: FakeServer) -> None:
    ended = windlass("approvals", "--deployment", "tea")
    assert (ended.code, ended.err) == (0, "")
    heading, row = ended.out.splitlines()
    assert heading.split() == ["QUESTION", "CREW", "TASK", "ASKED", "UNTIL", "ASKS"]
    assert row.split()[:3] == [QUESTION, "tea", "review"]
    assert row.endswith("Is it good? Or not?")
    assert [one.query for one in server.seen] == ["deployment=tea&limit=50"]
    assert json.loads(windlass("approvals", "list", "--json").out)["approvals"] == [ASKED]


def test_nothing_that_waits_is_said(windlass: Command, server: FakeServer) -> None:
    server.answers["GET approvals"] = {"items": [], "next_cursor": None}
    ended = windlass("approvals")
    assert (ended.code, ended.out, ended.err) == (0, "", "No question waits.\n")


def test_a_question_is_shown_and_its_draft_is_the_result(windlass: Command) -> None:
    ended = windlass("approvals", "show", QUESTION)
    assert (ended.code, ended.out) == (0, "# A draft\n")
    assert f"windlass approvals approve {QUESTION}" in ended.err
    assert "Crew tea, task review" in ended.err


def test_choices_are_named_with_their_command(windlass: Command, server: FakeServer) -> None:
    server.answers[f"GET approvals/{QUESTION}"] = {**DETAILS, "choices": ["good", "bad"]}
    ended = windlass("approvals", "show", QUESTION)
    assert "Choices: good, bad" in ended.err
    assert f"windlass approvals answer {QUESTION} CHOICE" in ended.err


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        (("approve", QUESTION), {"approve": True}),
        (("approve", QUESTION, "--feedback", "well done"), {"approve": True, "feedback": "well done"}),
        (("reject", QUESTION, "shorter"), {"approve": False, "feedback": "shorter"}),
        (("answer", QUESTION, "good"), {"feedback": "good"}),
    ],
)
def test_an_answer_is_sent_and_the_next_command_is_named(
    windlass: Command, server: FakeServer, arguments: tuple[str, ...], sent: dict[str, Any]
) -> None:
    ended = windlass("approvals", *arguments)
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.rstrip().endswith(f"{KICKOFF} --watch")
    assert server.sent(f"POST approvals/{QUESTION}/answer") == sent


def test_an_answer_that_comes_second_is_a_refusal(windlass: Command, server: FakeServer) -> None:
    late = problem(409, "Conflict", "The question was answered already.")
    server.answers[f"POST approvals/{QUESTION}/answer"] = late
    ended = windlass("approvals", "approve", QUESTION)
    assert (ended.code, "answered already" in ended.err) == (3, True)

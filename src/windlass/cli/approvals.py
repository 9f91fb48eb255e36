"""Lists the questions that crews ask people, and answers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windlass.cli.completion import complete_crew
from windlass.cli.lists import ListByDefault, limit_option, print_page, second
from windlass.cli.printing import json_option, notify, print_json, print_result
from windlass.cli.servers import chosen_server, control_of, profile_option

if TYPE_CHECKING:
    from collections.abc import Callable

HEADINGS = ("QUESTION", "CREW", "TASK", "ASKED", "UNTIL", "ASKS")
LONGEST_QUESTION = 60


@click.group(cls=ListByDefault)
def approvals() -> None:
    """List the questions that crews ask people, and answer them.

    Without a command it lists: `windlass approvals --deployment NAME`.
    """


@approvals.command("list")
@profile_option
@click.option("--deployment", metavar="NAME", shell_complete=complete_crew, help="Only questions of this crew.")
@limit_option
@json_option
def list_(profile: str | None, deployment: str | None, limit: int, *, json_output: bool) -> None:
    """List the questions that wait for an answer, the oldest first.

    Their executions use no process meanwhile. Times are UTC.
    """
    with control_of(chosen_server(profile)) as control:
        page = control.pages("approvals", limit=limit, deployment=deployment)
    print_page(page, HEADINGS, _cells, member="approvals", empty="No question waits.", json_output=json_output)


def _cells(one: dict[str, Any]) -> list[str]:
    question = " ".join(one["question"].split())
    return [
        one["id"],
        one["deployment"],
        one["task"] or "-",
        second(one["asked_at"]),
        second(one["expires_at"]),
        question if len(question) <= LONGEST_QUESTION else f"{question[: LONGEST_QUESTION - 3]}...",
    ]


def question_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("question", metavar="ID")(command)


@approvals.command
@question_argument
@profile_option
@json_option
def show(question: str, profile: str | None, *, json_output: bool) -> None:
    """Show a question with its draft.

    ID is that of the question, or of a kickoff that waits. The draft goes to standard output, everything else to
    standard error.
    """
    with control_of(chosen_server(profile)) as control:
        found = control.get("approvals", question)
    if json_output:
        print_json(found)
        return
    for line in _described(found):
        notify(line)
    print_result(found["draft"])


def _described(found: dict[str, Any]) -> list[str]:
    where = f", {'method' if found['method'] else 'task'} {found['task']}" if found["task"] else ""
    until = f", until {second(found['expires_at'])}" if found["expires_at"] else ""
    ends = {
        "waiting": f"It waits for an answer since {second(found['asked_at'])}{until}.",
        "answered": f"It was answered by {found['answered_by'] or 'somebody'}, at {second(found['answered_at'])}.",
        "closed": "It can't be answered any more.",
    }
    lines = [f"Crew {found['deployment']}{where}, kickoff {found['kickoff_id']}", ends[found["state"]]]
    lines += [found["question"]] if found["question"] else []
    lines += [f"Choices: {', '.join(found['choices'])}"] if found["choices"] else []
    if found["state"] == "waiting":
        lines += _commands(found)
    return [*lines, ""]


def _commands(found: dict[str, Any]) -> list[str]:
    if found["choices"] or found["method"]:
        words = "CHOICE" if found["choices"] else "TEXT"
        return [f"Answer it: windlass approvals answer {found['id']} {words}"]
    return [
        f"Approve it: windlass approvals approve {found['id']}",
        f"Or send feedback: windlass approvals reject {found['id']} TEXT",
    ]


@approvals.command
@question_argument
@profile_option
@click.option("--feedback", metavar="TEXT", help="Words beside the approval.")
@json_option
def approve(question: str, profile: str | None, feedback: str | None, *, json_output: bool) -> None:
    """Approve a draft. The kickoff goes on with it.

    No model is called for that. ID is that of the question, or of a kickoff that waits.
    """
    _answer(question, profile, {"approve": True, "feedback": feedback}, "Approved", json_output=json_output)


@approvals.command
@question_argument
@click.argument("feedback", metavar="FEEDBACK")
@profile_option
@json_option
def reject(question: str, feedback: str, profile: str | None, *, json_output: bool) -> None:
    """Reject a draft, with what to change.

    The task runs again with the draft and FEEDBACK, and asks again. ID is that of the question, or of a kickoff that
    waits.
    """
    _answer(question, profile, {"approve": False, "feedback": feedback}, "Sent", json_output=json_output)


@approvals.command
@question_argument
@click.argument("words", metavar="WORDS")
@profile_option
@json_option
def answer(question: str, words: str, profile: str | None, *, json_output: bool) -> None:
    """Answer a question of a flow.

    If it has choices, one of them decides without a model call, and a model of the crew maps other WORDS to a choice.
    ID is that of the question, or of a kickoff that waits.
    """
    _answer(question, profile, {"feedback": words}, "Answered", json_output=json_output)


def _answer(question: str, profile: str | None, body: dict[str, Any], words: str, *, json_output: bool) -> None:
    given = {name: value for name, value in body.items() if value is not None}
    server = chosen_server(profile)
    with control_of(server) as control:
        found = control.send("POST", "approvals", question, "answer", body=given)
    if json_output:
        print_json(found)
        return
    options = "".join(f" {option}" for option in server.options)
    notify(f"{words}. Follow it: windlass status{options} {found['kickoff_id']} --watch")

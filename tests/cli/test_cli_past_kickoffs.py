from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING

import pytest

from cli.fake_crew import KICKOFF, TOKEN, events, listed
from windlass.cli.log_text import LogText

if TYPE_CHECKING:
    from typing import Any

    from cli.fake_crew import FakeCrew
    from cli.the_command import Command

AT = "2026-01-02T03:04:05.006000Z"


@pytest.fixture
def windlass(windlass: Command) -> Command:
    windlass.environment["WINDLASS_TOKEN"] = TOKEN
    return windlass


def test_kickoffs_are_listed_in_a_table(windlass: Command, crew: FakeCrew) -> None:
    stopped = listed(2, "FAILED", reason="cancelled", error="it was\nstopped", user="ann", execution_time=1.25)
    crew.pages = [{"kickoffs": [stopped, listed(1, total_tokens=4310)], "next_cursor": None}]
    ended = windlass("kickoffs", crew.url)
    assert ended.code == 0, ended.err
    assert [" ".join(line.split()) for line in ended.out.splitlines()] == [
        "KICKOFF STATE CREATED SECONDS TOKENS USER ERROR",
        f"{stopped['kickoff_id']} FAILED (cancelled) 2026-01-02 03:04:05 1.2 - ann it was stopped",
        f"{listed(1)['kickoff_id']} SUCCESS 2026-01-02 03:04:05 - 4,310 -",
    ]
    assert (crew.seen[0].path, crew.seen[0].query) == ("/kickoffs", "limit=50")


def test_pages_are_read_until_the_limit(windlass: Command, crew: FakeCrew) -> None:
    rows = [listed(number) for number in range(3)]
    crew.pages = [{"kickoffs": rows[:2], "next_cursor": "c 1"}, {"kickoffs": rows[2:], "next_cursor": "c 2"}]
    ended = windlass("kickoffs", "list", crew.url, "--limit", "3", "--state", "FAILED", "--user", "a&b", "--json")
    assert json.loads(ended.out) == {"kickoffs": rows, "next_cursor": "c 2"}
    assert [seen.query for seen in crew.seen] == [
        "state=FAILED&user=a%26b&limit=3",
        "state=FAILED&user=a%26b&limit=1&cursor=c+1",
    ]


def test_an_empty_list_is_said_to_be_empty(windlass: Command, crew: FakeCrew) -> None:
    nothing: dict[str, Any] = {"kickoffs": [], "next_cursor": None}
    crew.pages = [nothing, nothing]
    assert windlass("kickoffs", crew.url).err == "The crew has no kickoffs yet.\n"
    assert windlass("kickoffs", crew.url, "--state", "FAILED").err == "No kickoff matches.\n"


def test_logs_show_what_a_crew_did(windlass: Command, crew: FakeCrew) -> None:
    system, user = {"role": "system", "content": "You are Ann."}, {"role": "user", "content": "Look up\ntea."}
    call = {"model": "m", "agent_id": "a"}
    again = {**call, "messages": [system, user, {"role": "tool", "content": "a leaf"}]}
    crew.pages = [
        events(
            ("task_started", {"task_name": "research"}),
            ("llm_call_started", {**call, "messages": [system, user]}),
            ("tool_usage_started", {"tool_name": "look", "tool_args": {"q": "tea"}}),
            ("tool_usage_finished", {"tool_name": "look", "output": "a leaf"}),
            ("output_stdout", {"line": "\x1b[31mred\x1b[0m"}),
            more=True,
        ),
        events(
            ("llm_call_started", again),
            ("llm_call_completed", {**call, "response": "Tea is a leaf.", "usage": {"total_tokens": 1234}}),
            ("something_internal", {"a": 1}),
            ("task_completed", {"task_name": "research", "output": {"raw": "Tea is a leaf."}}),
        ),
    ]
    ended = windlass("logs", crew.url, KICKOFF)
    assert ended.code == 0, ended.err
    at, more = "03:04:05.006", " " * 12
    assert ended.out.splitlines() == [
        "2026-01-02",
        f"{at}    task research started",
        f"{at}      model m is asked",
        f"{more}        system: You are Ann.",
        f"{more}        user: Look up",
        f"{more}          tea.",
        f'{at}      tool look {{"q": "tea"}}',
        f"{at}      tool look: done",
        f"{more}        a leaf",
        f"{at}      > red",
        f"{at}      model m is asked",
        f"{more}        (2 earlier messages)",
        f"{more}        tool: a leaf",
        f"{at}      model m answered, 1,234 tokens",
        f"{more}        Tea is a leaf.",
        f"{at}    task research: completed",
        f"{more}        Tea is a leaf.",
    ]
    assert [seen.query for seen in crew.seen] == ["after=0&limit=500", "after=5&limit=500"]


def test_logs_as_json_are_one_event_per_line(windlass: Command, crew: FakeCrew) -> None:
    crew.pages = [events(("something_internal", {"a": "ä"}), ("output_stdout", {"line": "b"}))]
    expected = list(crew.pages[0]["events"])
    ended = windlass("logs", crew.url, KICKOFF, "--json")
    assert [json.loads(line) for line in ended.out.splitlines()] == expected


def test_logs_can_be_followed_to_the_end(windlass: Command, crew: FakeCrew) -> None:
    first, second = events(("output_stdout", {"line": "a"}), ("output_stdout", {"line": "b"}))["events"]
    crew.streams = [message(first), f"{message(second)}event: end\ndata: {{}}\n\n"]
    ended = windlass("logs", "--follow", crew.url, KICKOFF)
    assert [line.split()[-1] for line in ended.out.splitlines()] == ["2026-01-02", "a", "b"]
    assert [seen.headers.get("last-event-id") for seen in crew.seen] == [None, str(first["seq"])]
    assert ended.err.splitlines()[-1] == "The server answers again."


def message(event: dict[str, Any]) -> str:
    return f"id: {event['seq']}\ndata: {json.dumps(event)}\n\n"


def test_logs_of_an_unknown_kickoff_are_an_error(windlass: Command, crew: FakeCrew) -> None:
    ended = windlass("logs", crew.url, "0199aaaa-0000-7000-8000-00000000ffff")
    assert ended.code == 3
    assert "no kickoff with this id" in ended.err


def shown(kind: str, payload: dict[str, Any], attempt: int = 1) -> list[str]:
    return [line.strip() for line in LogText().lines({"attempt": attempt, "type": kind, "at": AT, "payload": payload})]


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        ("crew_kickoff_failed", {"crew_name": "C", "error": "no\nkey"}, ["crew C failed: no key"]),
        ("llm_call_failed", {"model": "m", "error": "429"}, ["model m failed: 429"]),
        ("tool_usage_error", {"tool_name": "t", "error": "broken"}, ["tool t: failed", "broken"]),
        ("journal_restored", {"tasks": ["plan"], "methods": []}, ["taken from the journal: plan"]),
        ("library_log", {"logger": "l", "level": "WARNING", "message": "hot"}, ["WARNING of l: hot"]),
        (
            "traceback",
            {"text": "Traceback\n  File \"crew.py\", line 1\nKeyError: 'a'"},
            ["Traceback", 'File "crew.py", line 1', "KeyError: 'a'"],
        ),
        ("llm_call_started", {"messages": "what is tea?"}, ["model of the crew is asked", "user: what is tea?"]),
        ("llm_call_started", {"messages": None}, ["model of the crew is asked"]),
        ("llm_call_completed", {"model": "m", "response": {"a": 1}}, ["model m answered", '{"a": 1}']),
        ("task_completed", {}, ["task without a name: completed"]),
        ("tool_usage_finished", {"tool_name": "t", "output": "\n"}, ["tool t: done"]),
        (
            "stalled",
            {"seconds": 300, "stacks": "main:\n  wait"},
            ["stalled: nothing happened for 300 s", "main:", "wait"],
        ),
        ("output_stdout", {"line": " "}, []),
        ("output_stdout", {}, []),
    ],
)
def test_each_event_is_described(kind: str, payload: dict[str, Any], expected: list[str]) -> None:
    lines = shown(kind, payload)
    assert [lines[0].removeprefix("03:04:05.006").strip(), *lines[1:]] if lines else lines == expected


def test_terminal_codes_of_a_model_do_not_reach_the_terminal() -> None:
    lines = shown("llm_call_completed", {"model": "\x1b[2J", "response": "a\x1b]0;title\x07b"})
    assert all(line.isprintable() for line in lines)


def test_a_long_text_is_cut_with_a_note() -> None:
    (_, text) = shown("llm_call_completed", {"response": "x" * 5000})
    assert text.endswith("x ... (1,000 more characters; --json shows all)")


def test_the_date_is_shown_where_it_is_another_one() -> None:
    text = LogText(date(2026, 1, 2))
    found = [
        line
        for day in ("2026-01-02", "2026-01-02", "2026-01-03", "2026-01-05")
        for line in text.lines(
            {"attempt": 1, "type": "output_stdout", "at": f"{day}T03:04:05Z", "payload": {"line": "a"}}
        )
    ]
    line = "03:04:05.000      > a"
    assert found == [line, line, "2026-01-03", line, "2026-01-05", line]


def test_a_later_attempt_is_announced() -> None:
    assert shown("output_stdout", {"line": "a"}, attempt=2)[0] == "attempt 2"

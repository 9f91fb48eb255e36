from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cli.fake_crew import KICKOFF, STOPPING, TOKEN, failed, problem, running, task, waiting
from windlass.cli.why_text import LIMITS, WHILE_IT_WAITS

if TYPE_CHECKING:
    from cli.fake_crew import FakeCrew
    from cli.the_command import Command


@pytest.fixture
def windlass(windlass: Command) -> Command:
    windlass.environment["WINDLASS_TOKEN"] = TOKEN
    return windlass


def test_a_stop_asks_the_server_and_says_what_it_came_to(windlass: Command, crew: FakeCrew) -> None:
    ended = windlass("stop", crew.url, KICKOFF)
    assert (ended.code, ended.out, ended.err) == (0, "", f"{STOPPING}\n")
    assert [(seen.method, seen.path, seen.body) for seen in crew.seen] == [("POST", f"/stop/{KICKOFF}", None)]


def test_a_stop_can_wait_for_the_end_and_says_how_it_went(windlass: Command, crew: FakeCrew) -> None:
    stopped = failed(task("research", "failed"), reason="cancelled", error="the kickoff was stopped on request.")
    crew.statuses = [running(task("research", "running")), stopped]
    ended = windlass("stop", crew.url, KICKOFF, "--wait")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.splitlines() == [
        STOPPING,
        "runs",
        "  research: running, by Researcher",
        "  research: failed",
        "failed (cancelled): the kickoff was stopped on request.",
    ]


def test_a_program_gets_the_answer_to_a_stop_or_the_status_after_it(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [failed(reason="cancelled")]
    at_once = windlass("stop", crew.url, KICKOFF, "--json-output")
    assert (json.loads(at_once.out)["message"], at_once.err) == (STOPPING, "")
    assert json.loads(windlass("stop", crew.url, KICKOFF, "--wait", "--json-output").out) == crew.statuses[0]


def test_a_stop_of_an_unknown_kickoff_is_a_refusal(windlass: Command, crew: FakeCrew) -> None:
    ended = windlass("stop", crew.url, "unknown")
    assert (ended.code, ended.out) == (3, "")
    assert "404 Not Found" in ended.err


def test_a_stop_that_got_no_answer_does_not_speak_of_accepting(windlass: Command, crew: FakeCrew) -> None:
    crew.stop()
    ended = windlass("stop", crew.url, KICKOFF)
    assert ended.code == 4
    assert "idempotency" not in ended.err


def test_a_status_explains_what_a_kickoff_waits_for(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [waiting("paused", "its crew to be resumed: tea is paused")]
    ended = windlass("status", crew.url, KICKOFF)
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.splitlines()[0] == "It waits for its crew to be resumed: tea is paused."
    assert WHILE_IT_WAITS["paused"] in ended.err.splitlines()


def test_a_status_explains_why_a_kickoff_failed(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [failed(reason="limit", error="the run used 3 GB of memory.")]
    ended = windlass("status", crew.url, KICKOFF)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.splitlines() == ["It failed after 1.0 s (limit): the run used 3 GB of memory.", LIMITS]


@pytest.mark.parametrize("name", ["status", "stop"])
def test_without_an_id_or_with_more_than_an_address_before_it_the_usage_is_told(windlass: Command, name: str) -> None:
    for arguments in ((), ("http://127.0.0.1:9", KICKOFF, KICKOFF)):
        ended = windlass(name, *arguments)
        assert ended.code == 2
        assert "Give a kickoff's id, or the crew's URL and then the id." in ended.err
        kickoff = "[KICKOFF_ID]" if name == "stop" else "KICKOFF_ID"
        assert f"Usage: windlass {name} [OPTIONS] [URL] {kickoff}" in ended.err


@pytest.mark.parametrize("name", ["status", "stop"])
def test_an_address_alone_is_no_id(windlass: Command, name: str) -> None:
    ended = windlass(name, "http://127.0.0.1:9/crews/tea")
    assert (ended.code, "Give a kickoff's id after the URL." in ended.err) == (2, True)


@pytest.mark.parametrize("name", ["status", "stop"])
def test_an_address_before_the_id_that_is_none_is_a_usage_error(windlass: Command, name: str) -> None:
    ended = windlass(name, "127.0.0.1:8000", KICKOFF)
    assert ended.code == 2
    assert "Invalid value for 'URL'" in ended.err


@pytest.mark.parametrize("name", ["status", "stop"])
def test_without_an_address_and_a_server_here_the_command_says_how_to_name_one(windlass: Command, name: str) -> None:
    ended = windlass(name, KICKOFF)
    assert ended.code == 4
    assert ended.err.startswith("error: No server runs on ")
    assert "Give the crew's URL (before the id of a kickoff)" in ended.err


def test_an_interrupted_watch_leaves_the_kickoff_running_and_says_how_to_stop_it(
    windlass: Command, crew: FakeCrew
) -> None:
    crew.statuses = [running(task("research", "running"))]
    with windlass.started("kickoff", crew.url, "--watch") as command:
        command.wait_for("research: running")
        command.interrupt()
        assert command.end() == 130
        assert f"Follow it again with: windlass status {crew.url} {KICKOFF} --watch\n" in command.err
        assert f"Stop it with: windlass stop {crew.url} {KICKOFF}\n" in command.err
    assert not [seen for seen in crew.seen if "stop" in seen.path]


def test_a_kickoff_takes_what_says_when_it_runs_and_how_much_it_may_use(windlass: Command, crew: FakeCrew) -> None:
    when = ("--priority", "-7", "--run-at", "2030-01-15T09:30:00Z", "--timeout", "2.5")
    limits = ("--limit", "token_limit=1000", "--limit", "memory_limit=512 MB", "--limit", "timeout=0.5")
    key = ("--concurrency-key", "one at a time", "--concurrency-strategy", "cancel_running")
    assert windlass("kickoff", crew.url, *when, *limits, *key).code == 0
    assert crew.seen[0].body == {
        "inputs": {},
        "priority": -7,
        "runAt": "2030-01-15T09:30:00Z",
        "timeout": 2.5,
        "limits": {"token_limit": 1000, "memory_limit": "512 MB", "timeout": 0.5},
        "concurrencyKey": "one at a time",
        "concurrencyStrategy": "cancel_running",
    }


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--priority", "101"),
        ("--priority", "high"),
        ("--timeout", "0"),
        ("--timeout", "inf"),
        ("--timeout", "nan"),
        ("--limit", "token_limit"),
        ("--limit", "token_limit="),
        ("--limit", "=5"),
        ("--limit", "timeout=Infinity"),
        ("--limit", "timeout=1e999"),
        ("--concurrency-strategy", "wait"),
    ],
)
def test_a_value_that_can_not_be_meant_is_a_usage_error(
    windlass: Command, crew: FakeCrew, option: str, value: str
) -> None:
    ended = windlass("kickoff", crew.url, option, value)
    assert ended.code == 2
    assert option in ended.err
    assert crew.seen == []


def test_a_queue_that_is_full_is_told_with_when_to_try_again(windlass: Command, crew: FakeCrew) -> None:
    crew.refusal = problem(429, "Too Many Requests", "10000 kickoffs of this crew wait already.", waiting=10000)
    crew.refusal.headers["Retry-After"] = "7"
    ended = windlass("kickoff", crew.url)
    assert ended.code == 3
    assert ended.err.splitlines() == [
        "error: 429 Too Many Requests: 10000 kickoffs of this crew wait already.",
        "  waiting: 10000",
        "Try again in 7 s.",
    ]

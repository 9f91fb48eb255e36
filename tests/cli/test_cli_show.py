from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cli.fake_crew import KICKOFF, TOKEN, attempt, completed, failed, task

if TYPE_CHECKING:
    from cli.fake_crew import FakeCrew
    from cli.the_command import Command


@pytest.fixture
def windlass(windlass: Command) -> Command:
    windlass.environment["WINDLASS_TOKEN"] = TOKEN
    return windlass


def test_a_full_status_has_the_tasks_and_each_attempt_on_standard_output(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [completed(task("plan", "completed"), task("write", "completed"))]
    crew.attempts = [
        attempt(1, "released", "its worker stopped", ran=["plan"]),
        attempt(2, "SUCCESS", restored=1, from_journal=["plan"], ran=["write"]),
    ]
    ended = windlass("status", crew.url, KICKOFF, "--full")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == f"Kickoff {KICKOFF}"
    assert "     plan came from the journal. It ran write." in lines
    assert "released, to continue in another attempt: its worker stopped." in ended.out
    assert [(seen.method, seen.path) for seen in crew.seen] == [
        ("GET", f"/status/{KICKOFF}"),
        ("GET", f"/attempts/{KICKOFF}"),
    ]


def test_a_full_status_of_a_failed_kickoff_ends_with_1(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [failed(reason="lost", error="It was lost 4 times.")]
    ended = windlass("status", crew.url, KICKOFF, "--full")
    assert ended.code == 1
    assert "(lost): It was lost 4 times." in ended.out


def test_a_program_gets_the_status_with_the_attempts_in_it(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses, crew.attempts = [completed()], [attempt(1, "SUCCESS")]
    ended = windlass("status", crew.url, KICKOFF, "--full", "--json-output")
    assert json.loads(ended.out) == {**crew.statuses[0], "attempts": crew.attempts}


def test_an_unknown_kickoff_is_a_refusal(windlass: Command, crew: FakeCrew) -> None:
    ended = windlass("status", crew.url, "unknown", "--full")
    assert (ended.code, ended.out) == (3, "")
    assert "404 Not Found" in ended.err


def test_a_server_that_is_away_is_told(windlass: Command, crew: FakeCrew) -> None:
    crew.stop()
    assert windlass("status", crew.url, KICKOFF, "--full").code == 4

from __future__ import annotations

import os
import pty
import subprocess
from typing import TYPE_CHECKING

import pytest

from cli.fake_crew import KICKOFF, TOKEN, completed, failed, problem, running, task
from cli.the_command import line, read_to_end
from patience import DEADLINE

if TYPE_CHECKING:
    from cli.fake_crew import FakeCrew
    from cli.the_command import Command


@pytest.fixture
def windlass(windlass: Command) -> Command:
    windlass.environment["WINDLASS_TOKEN"] = TOKEN
    return windlass


def test_a_watched_kickoff_shows_each_move_once_and_gives_the_output_alone(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [
        {**running(task("research", "pending_run")), "state": "PENDING", "attempt": 0},
        running(task("research", "running")),
        completed(task("research", "completed")),
    ]
    ended = windlass("kickoff", crew.url, "-i", "topic=tea", "--watch")
    assert (ended.code, ended.out) == (0, "Tea is a leaf.\n")
    assert ended.err.splitlines() == [
        f"kickoff {KICKOFF}",
        "is accepted",
        "runs",
        "  research: running, by Researcher",
        "  research: completed",
        "completed, 4.2 s, 1,234 tokens",
    ]
    assert [seen.query for seen in crew.seen] == ["", "", "", "wait=2", "wait=2"], (
        "the inputs, the kickoff, and the status"
    )


def test_a_watched_kickoff_that_fails_ends_the_command_with_1(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [failed()]
    ended = windlass("kickoff", crew.url, "--watch")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.endswith("failed (error): KeyError: 'topic'\n")


def test_watching_goes_on_over_a_restart_of_the_server(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [running(task("research", "running"))]
    with windlass.started("status", crew.url, KICKOFF, "--watch") as command:
        command.wait_for("research: running")
        crew.stop()
        command.wait_for("The server is not available, trying again for 60 s")
        crew.statuses = [completed(task("research", "completed"), attempt=2)]
        crew.start()
        command.wait_for("The server answers again.")
        command.wait_for("research: completed")
        assert command.end() == 0
        assert command.out == "Tea is a leaf.\n"


def test_watching_goes_on_while_the_database_is_away(windlass: Command, crew: FakeCrew) -> None:
    crew.refusal = problem(503, "Service Unavailable", "The database is unavailable.")
    with windlass.started("status", crew.url, KICKOFF, "--watch") as command:
        command.wait_for("The server is not available, trying again for 60 s: 503 Service Unavailable")
        crew.refusal = None
        assert command.end() == 0


def test_watching_gives_up_when_its_patience_is_over(windlass: Command, crew: FakeCrew) -> None:
    crew.stop()
    ended = windlass("status", crew.url, KICKOFF, "--watch", "--patience", "0.3")
    assert (ended.code, ended.out) == (4, "")
    assert "The server was not available for more than 0.3 s" in ended.err
    assert "is not lost" in ended.err


def test_watching_ends_at_a_refusal(windlass: Command, crew: FakeCrew) -> None:
    crew.refusal = problem(404, "Not Found", "There is no kickoff with this id here.")
    assert windlass("status", crew.url, KICKOFF, "--watch").code == 3
    assert len(crew.seen) == 1


def test_a_terminal_sees_one_line_that_changes_and_no_code_of_the_output(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [running(task("research", "running")), completed(output="\x1b[2Jgone")]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        line("status", crew.url, KICKOFF, "--watch"), stdout=theirs, stderr=theirs, env=windlass.environment
    )
    os.close(theirs)
    shown = read_to_end(ours)
    assert process.wait(DEADLINE) == 0
    assert "\x1b[0m 0 of 1 task done; research, " in shown
    assert "\x1b[2J" not in shown
    assert shown.endswith("\\x1b[2Jgone\r\n")

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from cli.fake_crew import KICKOFF, TOKEN, FakeCrew, completed, running, task
from cli.the_command import line
from patience import DEADLINE

if TYPE_CHECKING:
    from cli.the_command import Command


def test_an_error_is_told_in_two_lines_without_a_traceback(windlass: Command) -> None:
    ended = windlass("admin", "db", "--url")
    message, hint = ended.err.splitlines()
    assert (ended.code, ended.out) == (1, "")
    assert message.startswith("error: The database in ")
    assert "windlass dev PATH" in hint


def test_the_traceback_is_there_for_who_asks_for_it(windlass: Command) -> None:
    ended = windlass("admin", "db", "--url", WINDLASS_LOG_LEVEL="DEBUG")
    assert ended.code == 1
    assert "Traceback" in ended.err
    assert "\nerror: The database in " in ended.err


def test_a_setting_that_cannot_be_used_is_named(windlass: Command) -> None:
    ended = windlass("admin", "db", "--url", WINDLASS_PORT="many")
    assert ended.code == 1
    assert ended.err.startswith("error: WINDLASS_PORT: ")


def test_an_interrupt_ends_a_command_with_130_and_no_noise(windlass: Command) -> None:
    with windlass.started("demo-llm", "--port", "0") as command:
        command.wait_for("OPENAI_BASE_URL")
        command.interrupt()
        assert command.end() == 130
        assert command.err.strip() == ""


def test_a_reader_that_is_gone_ends_a_command_quietly(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [completed(output="line\n" * 100_000)]
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        line("status", crew.url, KICKOFF),
        check=False,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env={**windlass.environment, "WINDLASS_TOKEN": TOKEN},
        timeout=DEADLINE,
    )
    os.close(writing)
    assert ended.returncode == 141
    assert ended.stderr.splitlines()[-1].startswith("completed")


def test_an_interrupted_watcher_is_told_that_the_kickoff_runs_on(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [running(task("research", "running"))]
    with windlass.started("status", crew.url, KICKOFF, "--watch", WINDLASS_TOKEN=TOKEN) as command:
        command.wait_for("research: running")
        command.interrupt()
        told = command.wait_for("The kickoff runs on")
        assert f"windlass status {crew.url} {KICKOFF} --watch" in told
        assert command.end() == 130


def test_what_a_terminal_cannot_show_is_written_as_its_code(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [completed(output="tea \u2615 \ud83d")]
    ended = windlass("status", crew.url, KICKOFF, WINDLASS_TOKEN=TOKEN, PYTHONIOENCODING="latin-1")
    assert (ended.code, ended.out) == (0, "tea \\u2615 \\ud83d\n")

"""`windlass kickoff --each` starts lines again: those that failed, when asked, and those that are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.batch_crew import BatchCrew, each, results, write

if TYPE_CHECKING:
    from pathlib import Path

    from cli.the_command import Command


def states(out: Path) -> list[tuple[str, int]]:
    """With how often each was started again."""
    return [(record["state"], record["retry"]) for record in results(out)]


def one_failed(windlass: Command, crew: BatchCrew, inputs: Path, out: Path) -> None:
    """The second line; it would succeed now."""
    crew.failing = {"tides"}
    ended = each(windlass, crew, inputs, "--out", out)
    assert ended.code == 1
    assert "The same command with --retry-failed starts the failed lines again." in ended.err
    crew.failing = set()


def test_a_failed_line_is_run_again_when_asked(windlass: Command, crew: BatchCrew, inputs: Path, out: Path) -> None:
    one_failed(windlass, crew, inputs, out)
    assert each(windlass, crew, inputs, "--out", out).code == 1
    assert crew.begun == 3
    ended = each(windlass, crew, inputs, "--out", out, "--retry-failed")
    assert ended.code == 0
    assert "--retry-failed" not in ended.err
    assert states(out) == [("SUCCESS", 0), ("SUCCESS", 1), ("SUCCESS", 0)]
    assert each(windlass, crew, inputs, "--out", out, "--retry-failed").code == 0
    assert crew.begun == 4


def test_a_line_that_fails_again_can_be_run_again(windlass: Command, crew: BatchCrew, inputs: Path, out: Path) -> None:
    one_failed(windlass, crew, inputs, out)
    crew.failing = {"tides"}
    assert each(windlass, crew, inputs, "--out", out, "--retry-failed").code == 1
    crew.failing = set()
    assert each(windlass, crew, inputs, "--out", out, "--retry-failed").code == 0
    assert states(out) == [("SUCCESS", 0), ("SUCCESS", 2), ("SUCCESS", 0)]


def test_a_retry_whose_answer_was_lost_starts_nothing_twice(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    one_failed(windlass, crew, inputs, out)
    crew.lose_answers = 1
    again = ("--out", out, "--retry-failed", "--patience", 0)
    assert each(windlass, crew, inputs, *again).code == 3
    assert each(windlass, crew, inputs, *again).code == 0
    assert crew.begun == 4


def test_a_retry_that_was_interrupted_is_gone_on_with(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    one_failed(windlass, crew, inputs, out)
    crew.held = {"tides", "toast"}
    write(inputs, "tea", "tides", "tin", "toast")
    arguments = ("kickoff", crew.url, "--each", str(inputs), "--out", str(out), "--retry-failed")
    with windlass.started(*arguments) as command:
        crew.wait_until_asked_for("toast")
        command.interrupt()
        assert command.end() == 130
    crew.held = set()
    assert windlass(*arguments).code == 0
    assert states(out) == [("SUCCESS", 0), ("SUCCESS", 1), ("SUCCESS", 0), ("SUCCESS", 0)]
    assert crew.begun == 5


def test_a_failed_line_may_have_other_inputs_when_it_is_run_again(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    one_failed(windlass, crew, inputs, out)
    write(inputs, "tea", "toast", "tin")
    assert each(windlass, crew, inputs, "--out", out).code == 2
    assert each(windlass, crew, inputs, "--out", out, "--retry-failed").code == 0
    assert crew.topics[results(out)[1]["kickoff_id"]] == "toast"


def test_what_failed_can_only_be_known_from_a_file(windlass: Command, crew: BatchCrew, inputs: Path) -> None:
    ended = each(windlass, crew, inputs, "--retry-failed")
    assert (ended.code, crew.seen) == (2, [])
    assert "give --out FILE too" in ended.err


def test_a_line_whose_open_kickoff_nobody_knows_any_more_is_started_again(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    crew.held = {"tides"}
    arguments = ("kickoff", crew.url, "--each", str(inputs), "--out", str(out))
    with windlass.started(*arguments) as command:
        crew.wait_until_asked_for("tides")
        command.interrupt()
        assert command.end() == 130
    crew.held = set()
    crew.lose_all()
    ended = windlass(*arguments)
    assert ended.code == 0
    assert "line 2 is started again: the server does not know its kickoff kickoff-2" in ended.err
    assert states(out)[1] == ("SUCCESS", 1)

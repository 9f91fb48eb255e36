"""The result file of `windlass kickoff --each`: the same command goes on from there."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from cli.batch_crew import BatchCrew, each, records, results, write, write_as_before

if TYPE_CHECKING:
    from pathlib import Path

    from cli.the_command import Command


def test_the_result_file_has_one_line_for_each_in_their_order(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    crew.failing = {"tides"}
    ended = each(windlass, crew, inputs, "--out", out)
    assert (ended.code, ended.out) == (1, "")
    found = results(out)
    assert [(record["line"], record["state"]) for record in found] == [(1, "SUCCESS"), (2, "FAILED"), (3, "SUCCESS")]
    assert found[0]["result"] == {"output": "All about tea.", "json": None, "tasks": []}
    assert (found[1]["reason"], found[1]["error"]) == ("error", "KeyError: 'topic'")
    assert "line 2 failed: KeyError: 'topic'" in ended.err
    assert "3 of 3 done: 2 succeeded, 1 failed, in " in ended.err


def test_a_batch_that_was_interrupted_goes_on_with_the_same_command(
    windlass: Command, crew: BatchCrew, tmp_path: Path, out: Path
) -> None:
    file = write(tmp_path / "inputs.jsonl", "tea", "tides", "tin", "toast")
    crew.failing, crew.held = {"tea"}, {"tides", "tin"}
    arguments = ("kickoff", crew.url, "--each", str(file), "--out", str(out), "--concurrency", "2")
    with windlass.started(*arguments) as command:
        command.wait_for("line 1 failed")
        crew.wait_until_asked_for("tin")
        command.interrupt()
        assert "Run the same command again to continue" in command.wait_for("continue on the server")
        assert command.end() == 130
    started = dict(crew.ids)
    crew.held = set()
    ended = windlass(*arguments)
    assert ended.code == 1
    assert len(started) == 3
    assert len(crew.ids) == 4
    assert [item["inputs"]["topic"] for item in crew.batches[-1]] == ["toast"]
    assert [(record["line"], record["state"]) for record in results(out)] == [
        (1, "FAILED"),
        (2, "SUCCESS"),
        (3, "SUCCESS"),
        (4, "SUCCESS"),
    ]


def test_a_finished_batch_starts_nothing_when_it_is_run_again(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    assert each(windlass, crew, inputs, "--out", out).code == 0
    before, text = len(crew.batches), out.read_bytes()
    assert each(windlass, crew, inputs, "--out", out).code == 0
    assert (len(crew.batches), out.read_bytes()) == (before, text)


def test_lines_that_were_added_are_started_and_the_others_not(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    assert each(windlass, crew, inputs, "--out", out).code == 0
    write(inputs, "tea", "tides", "tin", "toast")
    assert each(windlass, crew, inputs, "--out", out).code == 0
    assert len(crew.ids) == 4
    assert [record["line"] for record in results(out)] == [1, 2, 3, 4]


def test_what_a_killed_command_left_half_written_is_no_obstacle(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    assert each(windlass, crew, inputs, "--out", out).code == 0
    first, second, _ = out.read_text("utf-8").splitlines(keepends=True)
    out.write_text(first + second[:20], encoding="utf-8")
    ids = dict(crew.ids)
    assert each(windlass, crew, inputs, "--out", out).code == 0
    assert crew.ids == ids
    assert [record["state"] for record in results(out)] == ["SUCCESS"] * 3


@pytest.mark.parametrize("left", ["", '{"batch"', '{"batch": "0199'])
def test_a_beginning_that_was_half_written_is_no_obstacle(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path, left: str
) -> None:
    out.write_text(left)
    assert each(windlass, crew, inputs, "--out", out).code == 0
    assert len(results(out)) == 3


def test_a_line_that_was_refused_is_tried_again_once_it_is_mended(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    crew.unwanted = {"tides"}
    ended = each(windlass, crew, inputs, "--out", out)
    assert ended.code == 1
    assert "line 2 failed: 400 Bad Request: Not this topic." in ended.err
    assert [(record["kickoff_id"] is None, record["state"]) for record in results(out)] == [
        (False, "SUCCESS"),
        (True, "REFUSED"),
        (False, "SUCCESS"),
    ]
    write(inputs, "tea", "toast", "tin")
    assert each(windlass, crew, inputs, "--out", out).code == 0
    assert [record["state"] for record in results(out)] == ["SUCCESS"] * 3


def test_a_line_that_changed_after_its_kickoff_began_is_told_before_anything_is_started(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    assert each(windlass, crew, inputs, "--out", out).code == 0
    write(inputs, "tea", "toast", "tin", "tuna")
    before, text = len(crew.batches), out.read_bytes()
    ended = each(windlass, crew, inputs, "--out", out)
    assert ended.code == 2
    assert "line 2: its kickoff has started, with other inputs or options" in ended.err
    assert "line 1" not in ended.err
    ended = each(windlass, crew, write(inputs, "tea", "tides"), "--out", out)
    assert ended.code == 2
    assert (
        "line 3: its kickoff has started, but the line is missing from the input; restore it, or give another --out"
        in ended.err
    )
    assert "other inputs" not in ended.err
    assert (len(crew.batches), out.read_bytes()) == (before, text)


def test_a_queue_that_is_full_of_others_is_told(windlass: Command, crew: BatchCrew, inputs: Path, out: Path) -> None:
    crew.room = 0
    ended = each(windlass, crew, inputs, "--patience", 0, "--out", out)
    assert ended.code == 3
    assert "429 Too Many Requests: Full." in ended.err
    assert "Run the same command again to continue" in ended.err


def test_a_server_that_stays_away_ends_the_command_and_it_can_go_on_later(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    crew.held = {"tides"}
    arguments = ("kickoff", crew.url, "--each", str(inputs), "--out", str(out), "--patience", "0")
    with windlass.started(*arguments) as command:
        crew.wait_until_asked_for("tides")
        crew.stop()
        command.wait_for("Run the same command again to continue")
        assert command.end() == 4
    crew.held = set()
    crew.start()
    assert windlass(*arguments).code == 0
    assert len(crew.ids) == 3


@pytest.mark.parametrize("text", ["hello", "hello\n", '{"some": "json"}\n', '{"line": 1, "batch": "a"}\n', "[]\n"])
def test_a_file_of_something_else_is_left_alone(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path, text: str
) -> None:
    out.write_text(text)
    ended = each(windlass, crew, inputs, "--out", out)
    assert ended.code == 2
    assert "this is no result file of --each" in ended.err
    assert out.read_text() == text
    assert crew.batches == []


def test_results_of_another_crew_or_another_key_are_left_alone(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    out.write_text('{"batch": "mine", "url": "http://elsewhere.example"}\n')
    assert "this file belongs to the url http://elsewhere.example" in each(windlass, crew, inputs, "--out", out).err
    out.write_text(json.dumps({"batch": "mine", "url": crew.url}) + "\n")
    ended = each(windlass, crew, inputs, "--out", out, "--idempotency-key", "other")
    assert "this file belongs to the batch mine" in ended.err
    assert each(windlass, crew, inputs, "--out", out, "--idempotency-key", "mine").code == 0


@pytest.mark.parametrize("place", ["/dev/null", "."])
def test_what_is_no_file_takes_no_results(windlass: Command, crew: BatchCrew, inputs: Path, place: str) -> None:
    ended = each(windlass, crew, inputs, "--out", place)
    assert (ended.code, crew.batches) == (2, [])


def test_while_lines_are_open_the_first_line_of_the_file_names_the_batch(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    crew.held = {"tides"}
    with windlass.started("kickoff", crew.url, "--each", str(inputs), "--out", str(out)) as command:
        crew.wait_until_asked_for("tides")
        command.interrupt()
        assert command.end() == 130
    header, *found = records(out.read_text("utf-8"))
    assert set(header) == {"batch", "url"}
    assert {"line": 2, "kickoff_id": "kickoff-2", "state": "PENDING"}.items() <= found[1].items()
    assert all(header.items() <= record.items() for record in found)


def test_the_file_of_an_earlier_release_is_gone_on_with(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    assert each(windlass, crew, inputs, "--out", out).code == 0
    write_as_before(out)
    write(inputs, "tea", "tides", "tin", "toast")
    assert each(windlass, crew, inputs, "--out", out).code == 0
    assert [(record["line"], record["state"]) for record in results(out)] == [(n, "SUCCESS") for n in (1, 2, 3, 4)]
    assert crew.begun == 4


@pytest.mark.parametrize(
    "bad", ["{", "", '{"line": "x"}', '{"line": 2, "batch": "another"}', '{"line": 2, "retry": "x"}']
)
def test_a_line_of_the_file_that_is_no_record_is_named(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path, bad: str
) -> None:
    assert each(windlass, crew, inputs, "--out", out).code == 0
    first, _, third = out.read_text("utf-8").splitlines()
    out.write_text(f"{first}\n{bad}\n{third}\n", encoding="utf-8")
    before = out.read_bytes()
    ended = each(windlass, crew, inputs, "--out", out)
    assert (ended.code, out.read_bytes()) == (2, before)
    assert f"--out {out}: line 2 is no record of this batch" in ended.err


def test_a_dash_makes_no_file_of_that_name(windlass: Command, crew: BatchCrew, inputs: Path) -> None:
    ended = each(windlass, crew, inputs, "--out", "-")
    assert (ended.code, crew.seen) == (2, [])
    assert "results go to standard output when --out is left out" in ended.err


def test_a_pipe_takes_no_results(windlass: Command, crew: BatchCrew, inputs: Path, out: Path) -> None:
    os.mkfifo(out)
    for place in (out, "/dev/stdout"):
        ended = each(windlass, crew, inputs, "--out", place)
        assert (ended.code, crew.batches) == (2, [])
        assert f"--out {place}: this is no regular file" in ended.err

from __future__ import annotations

import json
import os
import pty
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from cli.batch_crew import BatchCrew
from cli.fake_crew import TOKEN, problem
from cli.the_command import DEADLINE, line, read_to_end
from windlass.cli.each_board import EVERY, Board, Counts, bar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cli.the_command import Command, Ended


@pytest.fixture
def windlass(windlass: Command) -> Command:
    windlass.environment["WINDLASS_TOKEN"] = TOKEN
    return windlass


@pytest.fixture
def crew() -> Iterator[BatchCrew]:
    crew = BatchCrew()
    crew.open()
    yield crew
    crew.close()


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    return write(tmp_path / "inputs.jsonl", "tea", "tides", "tin")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def write(file: Path, *topics: str) -> Path:
    file.write_text("".join(json.dumps({"topic": topic}) + "\n" for topic in topics), encoding="utf-8")
    return file


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def results(out: Path) -> list[dict[str, Any]]:
    """Without the first line, which names the batch."""
    header, *found = records(out.read_text("utf-8"))
    assert set(header) == {"batch", "url"}
    return found


def each(windlass: Command, crew: BatchCrew, inputs: Path, *more: object) -> Ended:
    return windlass("kickoff", crew.url, "--each", str(inputs), *map(str, more))


def test_each_line_is_kicked_off_and_its_result_printed(windlass: Command, crew: BatchCrew, inputs: Path) -> None:
    ended = each(windlass, crew, inputs)
    assert ended.code == 0
    found = sorted(records(ended.out), key=lambda record: int(record["line"]))
    assert [(record["line"], record["state"], record["result"]["output"]) for record in found] == [
        (1, "SUCCESS", "All about tea."),
        (2, "SUCCESS", "All about tides."),
        (3, "SUCCESS", "All about tin."),
    ]
    assert [crew.topics[record["kickoff_id"]] for record in found] == ["tea", "tides", "tin"]
    assert "3 of 3 done: 3 succeeded, 0 failed, in " in ended.err
    assert len(crew.batches) == 1


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


def test_other_options_hold_for_each_line_and_a_line_says_otherwise(
    windlass: Command, crew: BatchCrew, tmp_path: Path
) -> None:
    file = tmp_path / "inputs.jsonl"
    file.write_text('{"tone": "dry"}\n\n  \n{"topic": "tides"}\r\n', encoding="utf-8")
    ended = each(
        windlass, crew, file, "-i", "topic=tea", "--meta", '{"a": 1}', "--priority", 3, "--concurrency-key", "k"
    )
    assert ended.code == 0
    (batch,) = crew.batches
    keys = [item.pop("idempotencyKey") for item in batch]
    common = {"meta": {"a": 1}, "priority": 3, "concurrencyKey": "k"}
    assert batch == [{"inputs": {"topic": "tea", "tone": "dry"}, **common}, {"inputs": {"topic": "tides"}, **common}]
    assert len(set(keys)) == 2
    assert sorted(record["line"] for record in records(ended.out)) == [1, 4]


def test_lines_can_be_piped_in(windlass: Command, crew: BatchCrew) -> None:
    ended = windlass("kickoff", crew.url, "--each", "-", typed='{"topic": "tea"}\n{"topic": "tin"}')
    assert (ended.code, len(records(ended.out))) == (0, 2)


def test_no_more_are_open_at_a_time_than_was_asked_for(windlass: Command, crew: BatchCrew, tmp_path: Path) -> None:
    file = write(tmp_path / "inputs.jsonl", *(f"topic {number}" for number in range(20)))
    assert each(windlass, crew, file, "--concurrency", 3).code == 0
    assert len(crew.ids) == 20
    assert crew.most_open == 3


def test_bad_lines_are_told_with_their_numbers_before_anything_is_started(
    windlass: Command, crew: BatchCrew, tmp_path: Path, out: Path
) -> None:
    file = tmp_path / "inputs.jsonl"
    file.write_bytes(b'{"topic": "tea"}\n{"topic"\n[1]\n\xff\n{"topic": 1e999}\n{"topic": NaN}\n{"topic": "tin"}\n')
    ended = each(windlass, crew, file, "--out", out)
    assert (ended.code, ended.out) == (2, "")
    assert "nothing was started" in ended.err
    told = [text.strip() for text in ended.err.splitlines() if text.startswith("  line ")]
    assert [text.partition(":")[0] for text in told] == ["line 2", "line 3", "line 4", "line 5", "line 6"]
    assert crew.seen == []
    assert not out.exists()


def test_what_a_line_lacks_is_told_before_anything_is_started(
    windlass: Command, crew: BatchCrew, tmp_path: Path, out: Path
) -> None:
    file = tmp_path / "inputs.jsonl"
    file.write_text('{"topic": "tea"}\n' + '{"depth": 3}\n' * 30, encoding="utf-8")
    ended = each(windlass, crew, file, "--out", out)
    assert ended.code == 2
    assert "  line 2: inputs are missing: topic\n" in ended.err
    assert "  and 10 more\n" in ended.err
    assert "line 25" not in ended.err
    assert crew.batches == []
    assert not out.exists()


def test_a_file_without_lines_is_a_usage_error(windlass: Command, crew: BatchCrew, tmp_path: Path) -> None:
    (tmp_path / "inputs.jsonl").write_text("\n\n")
    assert each(windlass, crew, tmp_path / "inputs.jsonl").code == 2


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
        assert "Run the same command again to go on" in command.wait_for("runs on")
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
    header, first, second, _ = out.read_text("utf-8").splitlines(keepends=True)
    out.write_text(header + first + second[:20], encoding="utf-8")
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


def test_an_answer_that_was_lost_starts_nothing_twice(windlass: Command, crew: BatchCrew, inputs: Path) -> None:
    crew.lose_answers = 1
    assert each(windlass, crew, inputs).code == 0
    assert len(crew.batches) == 2
    assert len(crew.ids) == 3


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
    assert "line 2: its kickoff has begun, with other inputs or options" in ended.err
    assert "line 1" not in ended.err
    assert each(windlass, crew, write(inputs, "tea", "tides"), "--out", out).code == 2
    assert (len(crew.batches), out.read_bytes()) == (before, text)


def test_a_queue_that_is_full_of_its_own_kickoffs_is_waited_for(
    windlass: Command, crew: BatchCrew, tmp_path: Path
) -> None:
    crew.room = 1
    file = write(tmp_path / "inputs.jsonl", "tea", "tides", "tin")
    ended = each(windlass, crew, file, "--patience", 0)
    assert ended.code == 0
    assert (len(crew.ids), crew.most_open) == (3, 1)


def test_a_queue_that_is_full_of_others_is_told(windlass: Command, crew: BatchCrew, inputs: Path, out: Path) -> None:
    crew.room = 0
    ended = each(windlass, crew, inputs, "--patience", 0, "--out", out)
    assert ended.code == 3
    assert "429 Too Many Requests: Full." in ended.err
    assert "Run the same command again to go on" in ended.err


def test_a_kickoff_that_is_kept_no_longer_has_failed(windlass: Command, crew: BatchCrew, inputs: Path) -> None:
    crew.gone = {"tides"}
    ended = each(windlass, crew, inputs)
    assert ended.code == 1
    assert "line 2 failed: 404 Not Found: There is no kickoff with this id here." in ended.err


def test_a_batch_goes_on_over_a_restart_of_the_server(windlass: Command, crew: BatchCrew, inputs: Path) -> None:
    crew.held = {"tides"}
    with windlass.started("kickoff", crew.url, "--each", str(inputs)) as command:
        command.wait_for("All about tin")
        crew.stop()
        crew.held = set()
        crew.start()
        command.wait_for("All about tides")
        assert command.end() == 0


def test_a_server_that_stays_away_ends_the_command_and_it_can_go_on_later(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    crew.held = {"tides"}
    arguments = ("kickoff", crew.url, "--each", str(inputs), "--out", str(out), "--patience", "0")
    with windlass.started(*arguments) as command:
        crew.wait_until_asked_for("tides")
        crew.stop()
        command.wait_for("Run the same command again to go on")
        assert command.end() == 4
    crew.held = set()
    crew.start()
    assert windlass(*arguments).code == 0
    assert len(crew.ids) == 3


def test_a_wrong_token_starts_nothing(windlass: Command, crew: BatchCrew, inputs: Path, out: Path) -> None:
    windlass.environment["WINDLASS_TOKEN"] = "wlo_wrong"
    ended = each(windlass, crew, inputs, "--out", out)
    assert ended.code == 3
    assert not out.exists()
    assert "wlo_wrong" not in ended.err


def test_a_refusal_of_the_whole_batch_ends_the_command(windlass: Command, crew: BatchCrew, inputs: Path) -> None:
    crew.refused_batches = problem(401, "Unauthorized", "The token was revoked.")
    ended = each(windlass, crew, inputs)
    assert ended.code == 3
    assert "The token was revoked." in ended.err


@pytest.mark.parametrize(
    "text", ["hello", "hello\n", '{"some": "json"}\n', '{"batch": "a", "url": "b"}\n{"line": "x"}\n', "[]\n"]
)
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
    assert "it belongs to the url http://elsewhere.example" in each(windlass, crew, inputs, "--out", out).err
    out.write_text(json.dumps({"batch": "mine", "url": crew.url}) + "\n")
    ended = each(windlass, crew, inputs, "--out", out, "--idempotency-key", "other")
    assert "it belongs to the batch mine" in ended.err
    assert each(windlass, crew, inputs, "--out", out, "--idempotency-key", "mine").code == 0


def test_with_an_idempotency_key_the_same_lines_are_the_same_kickoffs_also_without_a_file(
    windlass: Command, crew: BatchCrew, inputs: Path
) -> None:
    first = each(windlass, crew, inputs, "--idempotency-key", "monday")
    again = each(windlass, crew, inputs, "--idempotency-key", "monday")
    assert sorted(first.out.splitlines()) == sorted(again.out.splitlines())
    assert len(crew.ids) == 3
    assert each(windlass, crew, inputs, "--idempotency-key", "tuesday").code == 0
    assert len(crew.ids) == 6


@pytest.mark.parametrize("place", ["/dev/null", "."])
def test_what_is_no_file_takes_no_results(windlass: Command, crew: BatchCrew, inputs: Path, place: str) -> None:
    ended = each(windlass, crew, inputs, "--out", place)
    assert (ended.code, crew.batches) == (2, [])


@pytest.mark.parametrize("more", [["--watch"], ["--json-output"], ["--concurrency", "0"]])
def test_options_without_meaning_together_are_refused(
    windlass: Command, crew: BatchCrew, inputs: Path, more: list[str]
) -> None:
    assert each(windlass, crew, inputs, *more).code == 2
    assert crew.seen == []


def test_a_result_file_without_lines_to_start_is_a_usage_error(windlass: Command, crew: BatchCrew, out: Path) -> None:
    assert windlass("kickoff", crew.url, "--out", str(out)).code == 2
    assert not out.exists()


def test_a_terminal_sees_a_bar(windlass: Command, crew: BatchCrew, inputs: Path, out: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = line("kickoff", crew.url, "--each", str(inputs), "--out", str(out))
    process = subprocess.Popen(arguments, stdout=theirs, stderr=theirs, env=windlass.environment)
    os.close(theirs)
    shown = read_to_end(ours)
    assert process.wait(DEADLINE) == 0
    assert "\r\x1b[K[------------------------] 0 of 3 done, 0 failed, 3 open, 0 s" in shown
    assert "[########################] 3 of 3 done" in shown
    assert "3 of 3 done: 3 succeeded" in shown


def test_a_bar_is_full_only_when_all_have_ended() -> None:
    assert bar(Counts(1000, 999, 0, 1), 10) == "[#########-]"
    assert bar(Counts(1000, 1000, 3, 0), 10) == "[##########]"
    assert bar(Counts(3, 0, 0, 3), 10) == "[----------]"


def test_without_a_terminal_a_line_is_told_now_and_then_when_something_moved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 100.0
    board = Board(terminal=False, clock=lambda: now)
    for seconds, ended in ((0.0, 0), (EVERY - 1, 1), (EVERY, 2), (EVERY + 1, 3), (2 * EVERY, 3), (9 * EVERY, 3)):
        now = 100.0 + seconds
        board.show(Counts(4, ended, 0, 1))
    assert capsys.readouterr().err.splitlines() == [
        "2 of 4 done, 0 failed, 1 open, 15 s",
        "3 of 4 done, 0 failed, 1 open, 30 s",
    ]

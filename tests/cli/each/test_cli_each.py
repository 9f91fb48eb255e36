from __future__ import annotations

import os
import pty
import subprocess
from typing import TYPE_CHECKING

import pytest

from cli.batch_crew import BatchCrew, each, records, write
from cli.fake_crew import problem
from cli.the_command import line, read_to_end
from patience import DEADLINE
from windlass.cli.batch.run import EVERY, Board, Counts
from windlass.cli.printing import BAR

if TYPE_CHECKING:
    from pathlib import Path

    from cli.the_command import Command


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


def test_an_answer_that_was_lost_starts_nothing_twice(windlass: Command, crew: BatchCrew, inputs: Path) -> None:
    crew.lose_answers = 1
    assert each(windlass, crew, inputs).code == 0
    assert len(crew.batches) == 2
    assert len(crew.ids) == 3


def test_a_queue_that_is_full_of_its_own_kickoffs_is_waited_for(
    windlass: Command, crew: BatchCrew, tmp_path: Path
) -> None:
    crew.room = 1
    file = write(tmp_path / "inputs.jsonl", "tea", "tides", "tin")
    ended = each(windlass, crew, file, "--patience", 0)
    assert ended.code == 0
    assert (len(crew.ids), crew.most_open) == (3, 1)


def test_a_kickoff_that_is_kept_no_longer_is_started_again_once(
    windlass: Command, crew: BatchCrew, inputs: Path
) -> None:
    crew.gone = {"tides"}
    ended = each(windlass, crew, inputs)
    assert ended.code == 1
    assert "line 2 is started again: the server does not know its kickoff kickoff-2" in ended.err
    assert "line 2 failed: 404 Not Found: There is no kickoff with this id here." in ended.err
    assert crew.begun == 4


def test_a_batch_goes_on_over_a_restart_of_the_server(windlass: Command, crew: BatchCrew, inputs: Path) -> None:
    crew.held = {"tides"}
    with windlass.started("kickoff", crew.url, "--each", str(inputs)) as command:
        command.wait_for("All about tin")
        crew.stop()
        crew.held = set()
        crew.start()
        command.wait_for("All about tides")
        assert command.end() == 0


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


def test_with_an_idempotency_key_the_same_lines_are_the_same_kickoffs_also_without_a_file(
    windlass: Command, crew: BatchCrew, inputs: Path
) -> None:
    first = each(windlass, crew, inputs, "--idempotency-key", "monday")
    again = each(windlass, crew, inputs, "--idempotency-key", "monday")
    assert sorted(first.out.splitlines()) == sorted(again.out.splitlines())
    assert len(crew.ids) == 3
    assert each(windlass, crew, inputs, "--idempotency-key", "tuesday").code == 0
    assert len(crew.ids) == 6


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
    assert "0 of 3 done, 0 failed, 3 open, " in shown
    assert "\u2501" * BAR + "\x1b[0m 3 of 3 done" in shown
    assert "3 of 3 done: 3 succeeded" in shown


def test_without_a_terminal_a_line_is_told_now_and_then_when_something_moved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 100.0
    board = Board(lambda: now)
    for seconds, ended in ((0.0, 0), (EVERY - 1, 1), (EVERY, 2), (EVERY + 1, 3), (2 * EVERY, 3), (9 * EVERY, 3)):
        now = 100.0 + seconds
        board.show(Counts(4, ended, 0, 1))
    assert capsys.readouterr().err.splitlines() == [
        "2 of 4 done, 0 failed, 1 open, 15 s",
        "3 of 4 done, 0 failed, 1 open, 30 s",
    ]


def test_what_is_open_is_named_when_the_command_is_interrupted(
    windlass: Command, crew: BatchCrew, inputs: Path
) -> None:
    crew.held = {"tides", "tin"}
    with windlass.started("kickoff", crew.url, "--each", str(inputs)) as command:
        command.wait_for("All about tea")
        command.interrupt()
        assert command.end() == 130
    assert f"continue on the server; `windlass status {crew.url} KICKOFF_ID --watch` shows one of them." in command.err
    told = [text for text in command.err.splitlines() if text.startswith("  line ")]
    assert told == ["  line 2: kickoff-2", "  line 3: kickoff-3"]
    assert "With --out FILE the results are stored" in command.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            '[{"topic": "tea"}, {"topic": "tin"}]',
            "one JSON array. Convert each of its items to a line: `jq -c '.[]'`",
        ),
        ('[\n{"topic": "tea"},\n{"topic": "tin"}\n]\n', "`jq -c '.[]'`"),
        ('{\n  "topic": "tea"\n}\n', "one JSON object over several lines. Join them to one line: `jq -c .`"),
        (
            "topic,tone\ntea,dry\n",
            "the file is CSV, it seems. Convert each line to a JSON object: `mlr --icsv --ojsonl cat`",
        ),
    ],
)
def test_a_file_of_another_form_is_told_with_what_makes_lines_of_it(
    windlass: Command, crew: BatchCrew, tmp_path: Path, content: str, words: str
) -> None:
    file = tmp_path / "inputs"
    file.write_text(content, encoding="utf-8")
    ended = each(windlass, crew, file)
    assert (ended.code, crew.batches) == (2, [])
    assert words in ended.err
    assert "line 1" not in ended.err


def test_a_line_that_is_no_json_among_others_is_told_as_such(
    windlass: Command, crew: BatchCrew, tmp_path: Path
) -> None:
    file = tmp_path / "inputs"
    file.write_text('"topic": "tea", "tone": "dry"\n{"topic": "tin"}\n', encoding="utf-8")
    assert "line 1: this is not JSON" in each(windlass, crew, file).err

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest
from starlette.responses import HTMLResponse, RedirectResponse

from cli.fake_crew import KICKOFF, TOKEN, completed, failed, problem, running, task
from windlass.cli.why_text import LIMITS

if TYPE_CHECKING:
    from pathlib import Path

    from cli.fake_crew import FakeCrew
    from cli.the_command import Command


@pytest.fixture
def windlass(windlass: Command) -> Command:
    windlass.environment["WINDLASS_TOKEN"] = TOKEN
    return windlass


def test_inputs_are_listed_with_what_is_known_of_them(windlass: Command, crew: FakeCrew) -> None:
    ended = windlass("inputs", crew.url)
    assert ended.code == 0
    assert [" ".join(line.split()) for line in ended.out.splitlines()] == [
        "topic required string What to look into.",
        "depth default 3 integer or null",
        'tone optional one of "dry", "warm" ' + "How it sounds. " * 4 + "How it sounds....",
    ]
    assert f"windlass kickoff {crew.url} -i topic=... --watch" in ended.err


def test_a_kickoff_prints_its_id_alone(windlass: Command, crew: FakeCrew) -> None:
    ended = windlass("kickoff", f"{crew.url}/", "-i", "topic=tea", "-i", "depth:=2")
    assert (ended.code, ended.out) == (0, f"{KICKOFF}\n")
    assert f"windlass status {crew.url} {KICKOFF} --watch" in ended.err
    assert [one.path for one in crew.seen] == ["/inputs", "/kickoff"]
    assert crew.seen[1].body == {"inputs": {"topic": "tea", "depth": 2}}


def test_an_input_gets_the_type_that_the_schema_of_the_crew_demands(windlass: Command, crew: FakeCrew) -> None:
    assert windlass("kickoff", crew.url, "-i", "topic=3", "-i", "depth=2").code == 0
    assert crew.seen[-1].body == {"inputs": {"topic": "3", "depth": 2}}
    ended = windlass("kickoff", crew.url, "-i", "topic=3", "-i", "depth=two")
    assert (ended.code, "-i 'depth:=3'" in ended.err) == (2, True)
    assert [one.path for one in crew.seen] == ["/inputs", "/kickoff", "/inputs"], "nothing was started"


def test_a_kickoff_takes_inputs_from_a_file_and_passes_the_rest_on(
    windlass: Command, crew: FakeCrew, tmp_path: Path
) -> None:
    file = tmp_path / "inputs.json"
    file.write_text(json.dumps({"topic": "Straße", "tone": "dry"}), encoding="utf-8")
    rest = ("--inputs-json", '{"tone": "warm"}', "--meta", '{"from": "here"}', "--idempotency-key", "Schlüssel 1")
    assert windlass("kickoff", crew.url, "--inputs", str(file), *rest).code == 0
    assert crew.seen[0].body == {
        "inputs": {"topic": "Straße", "tone": "warm"},
        "meta": {"from": "here"},
        "idempotencyKey": "Schlüssel 1",
    }


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_inputs_can_be_piped_in(windlass: Command, crew: FakeCrew, mark: str) -> None:
    assert windlass("kickoff", crew.url, "--inputs", "-", typed=mark + '{"topic": "tea"}').code == 0
    assert crew.seen[0].body == {"inputs": {"topic": "tea"}}


def test_a_byte_order_mark_is_no_part_of_the_inputs(windlass: Command, crew: FakeCrew, tmp_path: Path) -> None:
    file = tmp_path / "inputs.json"
    file.write_text('{"topic": "tea"}', "utf-8-sig")
    assert windlass("kickoff", crew.url, "--inputs", str(file)).code == 0
    assert crew.seen[0].body == {"inputs": {"topic": "tea"}}


def test_a_file_that_is_not_text_is_a_usage_error(windlass: Command, crew: FakeCrew, tmp_path: Path) -> None:
    (tmp_path / "inputs.json").write_bytes(b"\xff\xfe")
    ended = windlass("kickoff", crew.url, "--inputs", str(tmp_path / "inputs.json"))
    assert ended.code == 2
    assert "is not UTF-8" in ended.err


def test_the_status_of_a_kickoff_that_ended_is_its_output_and_beside_it_how_it_went(
    windlass: Command, crew: FakeCrew
) -> None:
    times = {"started_at": "2026-01-02T03:04:06Z", "finished_at": "2026-01-02T03:04:08.500Z"}
    crew.statuses = [completed(task("research", "completed", **times), task(None, "skipped"))]
    ended = windlass("status", crew.url, KICKOFF)
    assert (ended.code, ended.out) == (0, "Tea is a leaf.\n")
    assert ended.err.splitlines() == [
        "  research: completed in 2.5 s",
        "  task 2: skipped",
        "completed, 4.2 s, 1,234 tokens",
    ]


def test_a_program_gets_the_output_unchanged(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [completed(output="\x1b[1mTea\x1b[0m\u00a0\t\n")]
    assert windlass("status", crew.url, KICKOFF).out == "\x1b[1mTea\x1b[0m\u00a0\t\n\n"


def test_a_status_of_the_live_profile_reads_the_same(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [completed(result="Tea is a leaf.", result_json=None, tasks_output=[])]
    assert windlass("status", crew.url, KICKOFF).out == "Tea is a leaf.\n"


def test_the_status_of_a_kickoff_that_runs_is_no_failure(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [running(task("research", "completed"), task("write", "running"))]
    ended = windlass("status", crew.url, KICKOFF)
    assert (ended.code, ended.out) == (0, "")
    assert "It runs the task write, by Researcher" in ended.err
    assert "1 of 2 tasks are done.\n" in ended.err


def test_a_kickoff_that_failed_ends_the_command_with_1_and_says_why(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [failed(task("research", "failed"), reason="timed_out", error="It took more than 60 s.")]
    ended = windlass("status", crew.url, KICKOFF)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.splitlines() == [
        "  research: failed",
        "It failed after 1.0 s (timed_out): It took more than 60 s.",
        "The failed task is research.",
        LIMITS,
    ]


def test_a_program_gets_the_whole_answer(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [failed()]
    ended = windlass("status", crew.url, KICKOFF, "--json-output")
    assert (ended.code, ended.err) == (1, "")
    assert json.loads(ended.out) == failed()
    assert json.loads(windlass("inputs", crew.url, "--json-output").out)["inputs"] == ["topic"]
    assert json.loads(windlass("kickoff", crew.url, "--json-output").out) == {"kickoff_id": KICKOFF}


def test_a_refusal_is_told_in_words_with_its_details(windlass: Command, crew: FakeCrew) -> None:
    crew.refusal = problem(422, "Validation Error", "Required inputs are missing.", missing_inputs=["topic", "depth"])
    ended = windlass("kickoff", crew.url)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.splitlines() == [
        "error: 422 Validation Error: Required inputs are missing.",
        "  missing inputs: topic, depth",
        "Give each one with: -i NAME=VALUE",
    ]


def test_values_that_break_the_schema_are_told_by_their_names(windlass: Command, crew: FakeCrew) -> None:
    reasons = {"depth": "'x' is not of type 'integer'", "tone": "'wet' is not one of these"}
    crew.refusal = problem(400, "Bad Request", "Some inputs break the schema.", invalid_inputs=reasons, limit=3)
    told = windlass("kickoff", crew.url).err.splitlines()
    assert told[1] == "  invalid inputs: depth: 'x' is not of type 'integer'; tone: 'wet' is not one of these"
    assert told[2] == "  limit: 3"
    assert "-i NAME:=JSON" in told[3]


def test_a_wrong_token_is_a_refusal(windlass: Command, crew: FakeCrew) -> None:
    ended = windlass("status", crew.url, KICKOFF, WINDLASS_TOKEN="wlo_wrong")
    assert ended.code == 3
    assert ended.err == "error: 401 Unauthorized: The request needs a valid token of this crew.\n"


def test_a_kickoff_id_is_one_part_of_a_path(windlass: Command, crew: FakeCrew) -> None:
    assert windlass("status", crew.url, "../inputs?x=1").code == 3
    assert crew.seen[0].path == "/status/../inputs?x=1"


def test_an_answer_of_another_program_is_told_as_such(windlass: Command, crew: FakeCrew) -> None:
    crew.refusal = HTMLResponse("<h1>Welcome\x1b[2J to\nnginx</h1>" + "." * 1000, 502)
    ended = windlass("kickoff", crew.url)
    assert ended.code == 3
    assert "does not answer as a crew does: 502 Bad Gateway, text/html" in ended.err
    assert "<h1>Welcome\\x1b[2J to nginx</h1>" in ended.err
    assert len(ended.err) < 600


def test_a_page_in_place_of_an_answer_is_told_as_such(windlass: Command, crew: FakeCrew) -> None:
    crew.refusal = HTMLResponse("<h1>Sign in</h1>")
    ended = windlass("inputs", crew.url)
    assert ended.code == 3
    assert "200 OK, text/html" in ended.err


def test_a_redirect_is_not_followed_with_the_token(windlass: Command, crew: FakeCrew) -> None:
    crew.refusal = RedirectResponse("https://elsewhere.example/login")
    ended = windlass("inputs", crew.url)
    assert ended.code == 3
    assert "redirects to https://elsewhere.example/login" in ended.err


def test_a_server_that_is_not_there_is_another_ending_than_a_refusal(windlass: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ended = windlass("kickoff", f"http://127.0.0.1:{port}", "--watch")
    assert (ended.code, ended.out) == (4, "")
    assert f"http://127.0.0.1:{port} can't be reached" in ended.err

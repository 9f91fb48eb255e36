from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cli.fake_crew import completed, failed, running, task, waiting
from windlass.cli.progress import changes, ending, final_output, now

pytestmark = pytest.mark.unit


AT = datetime(2026, 1, 2, 3, 4, 20, tzinfo=UTC)


def test_nothing_is_told_twice() -> None:
    status = running(task("a", "running"), warnings=[{"code": "x", "message": "Look here."}])
    assert changes(None, status) == ["runs", "  a: running, by Researcher", "warning: Look here."]
    assert changes(status, status) == []


def test_another_attempt_is_told_with_the_tasks_that_began_again() -> None:
    before = running(task("a", "completed"), task("b", "running"))
    after = running(task("a", "completed"), task("b", "pending_run"), attempt=2)
    assert changes(before, after) == ["runs again (attempt 2)", "  b: pending run"]


def test_a_kickoff_that_waits_for_a_human_is_described_as_such() -> None:
    status = {**running(task("a", "pending_human_input")), "state": "PENDING_HUMAN_INPUT"}
    assert changes(running(task("a", "running")), status) == [
        "waits for a human",
        "  a: waits for a human",
    ]


def test_a_question_is_shown_once_with_the_command_that_answers_it() -> None:
    asked = {"task_id": "0199", "question": "Is it\n good? " + 300 * "x"}
    status = {**running(task("a", "pending_human_input")), "state": "PAUSED", "human_input": asked}
    *_, question, command = changes(None, status)
    assert question == f"asks: Is it good? {185 * 'x'}..."
    assert command == "read the draft and answer: windlass approvals show 0199"
    assert changes(status, status) == []
    again = {**status, "human_input": {**asked, "task_id": "0200"}}
    assert changes(status, again)[-1].endswith("0200")


def test_the_moment_is_told_by_the_task_and_how_long_it_has_run() -> None:
    tasks = (task("a", "completed"), task("b", "running", started_at="2026-01-02T03:04:10Z"))
    assert now(running(*tasks), AT) == "1 of 2 tasks done; b, 10 s"


def test_the_moment_is_told_by_the_state_while_no_task_runs() -> None:
    queued = {**running(task("a", "pending_run")), "state": "PENDING", "started_at": None}
    assert now(queued, AT) == "0 of 1 task done; is accepted, 15 s"


def test_the_moment_of_a_waiting_kickoff_is_told_by_what_it_waits_for() -> None:
    queued = waiting("slot", "a free slot: 4 of 4 are taken; it is the 3rd in the queue of this crew", 3)
    assert now(queued, AT) == (
        "0 of 1 task done; waits for a free slot: 4 of 4 are taken; it is the 3rd in the queue of this crew, 15 s"
    )


def test_another_thing_to_wait_for_is_told_and_another_place_is_not() -> None:
    third, second = waiting("slot", "a slot; the 3rd", 3), waiting("slot", "a slot; the 2nd", 2)
    paused, nobody_knows = waiting("paused", "its crew, which is paused"), {**third, "waiting_for": None}
    assert changes(None, third) == ["waits for a slot; the 3rd"]
    assert changes(third, second) == []
    assert changes(second, paused) == ["waits for its crew, which is paused"]
    assert changes(paused, nobody_knows) == []


def test_a_run_whose_process_is_ready_is_told_to_run() -> None:
    starting = running(task("a", "pending_run"), waiting_for={"code": "zygote", "message": "a process", "place": None})
    assert changes(waiting("slot", "a slot"), starting) == [
        "is starting: its process is prepared, which takes some seconds"
    ]
    assert changes(starting, running(task("a", "pending_run"), waiting_for=None)) == ["runs"]


def test_a_run_that_imports_its_project_is_starting() -> None:
    importing = running(task("a", "pending_run"), waiting_for={"code": "import", "message": "an import", "place": None})
    assert changes(None, importing) == ["is starting: its process imports the project's code"]


def test_words_of_the_server_are_no_form_to_fill_in() -> None:
    assert changes(None, waiting("key", "the kickoff {with} this key")) == ["waits for the kickoff {with} this key"]


def test_the_final_output_is_read_from_both_profiles() -> None:
    assert final_output(completed(output="tea")) == "tea"
    assert final_output(completed(result="tea")) == "tea"
    assert final_output(completed(result=None)) == ""


def test_a_failure_says_its_reason_and_its_error() -> None:
    assert ending(failed(reason="lost", error="Lost 4 times.")) == "failed (lost): Lost 4 times."


def test_an_answer_without_the_members_that_may_be_missing_is_still_told() -> None:
    bare = {"state": "STARTED"}
    assert changes(None, bare) == ["runs"]
    assert now(bare, AT) == "0 of ? tasks done; runs"
    assert ending({"state": "SUCCESS"}) == "completed"
    assert ending({"state": "FAILED"}) == "failed (error): the server gave no reason"

from __future__ import annotations

from datetime import UTC, datetime

from cli.fake_crew import completed, failed, running, task
from windlass.cli.progress import changes, ending, final_output, now

URL = "http://127.0.0.1:8000"
AT = datetime(2026, 1, 2, 3, 4, 20, tzinfo=UTC)


def test_nothing_is_told_twice() -> None:
    status = running(task("a", "running"), warnings=[{"code": "x", "message": "Look here."}])
    assert changes(None, status, URL) == ["runs", "  a: running, by Researcher", "warning: Look here."]
    assert changes(status, status, URL) == []


def test_another_attempt_is_told_with_the_tasks_that_began_again() -> None:
    before = running(task("a", "completed"), task("b", "running"))
    after = running(task("a", "completed"), task("b", "pending_run"), attempt=2)
    assert changes(before, after, URL) == ["runs again (attempt 2)", "  b: pending run"]


def test_a_kickoff_that_waits_for_a_human_says_how_to_answer() -> None:
    status = {**running(task("a", "pending_human_input")), "state": "PENDING_HUMAN_INPUT"}
    assert changes(running(task("a", "running")), status, URL) == [
        f"waits for a human: answer with POST {URL}/resume",
        "  a: waits for a human",
    ]


def test_the_moment_is_told_by_the_task_and_how_long_it_has_run() -> None:
    tasks = (task("a", "completed"), task("b", "running", started_at="2026-01-02T03:04:10Z"))
    assert now(running(*tasks), AT) == "1 of 2 tasks done; b, 10 s"


def test_the_moment_is_told_by_the_state_while_no_task_runs() -> None:
    queued = {**running(task("a", "pending_run")), "state": "PENDING", "started_at": None}
    assert now(queued, AT) == "0 of 1 tasks done; waits for a worker, 15 s"


def test_the_final_output_is_read_from_both_profiles() -> None:
    assert final_output(completed(output="tea")) == "tea"
    assert final_output(completed(result="tea")) == "tea"
    assert final_output(completed(result=None)) == ""


def test_a_failure_says_its_reason_and_its_error() -> None:
    assert ending(failed(reason="lost", error="Lost 4 times.")) == "failed (lost): Lost 4 times."


def test_an_answer_without_the_members_that_may_be_missing_is_still_told() -> None:
    bare = {"state": "STARTED"}
    assert changes(None, bare, URL) == ["runs"]
    assert now(bare, AT) == "0 of ? tasks done; runs"
    assert ending({"state": "SUCCESS"}) == "completed"
    assert ending({"state": "FAILED"}) == "failed (error): the server does not say why"

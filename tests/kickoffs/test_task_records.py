from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windlass.kickoffs.manifest import TaskDefinition
from windlass.kickoffs.states import TaskState
from windlass.kickoffs.tasks import UNSTABLE, TaskRecord, TaskRecords, Warning_, pending_records
from windlass_child.protocol.messages import TaskEnded, TasksKnown, TaskStarted

pytestmark = pytest.mark.unit


PLAN = TaskDefinition("plan", "aa", "plan", "Guide")
WRITE = TaskDefinition("bb", "bb", None, None)


@pytest.fixture
def records() -> TaskRecords:
    return TaskRecords([PLAN, WRITE])


def start(position: int, key: str, name: str | None = None, at: float = 1.0, agent: str | None = None) -> TaskStarted:
    return TaskStarted(position, key, name, agent, at)


def known(*tasks: tuple[str, str | None]) -> TasksKnown:
    return TasksKnown([{"key": key, "name": name, "agent": "Somebody"} for key, name in tasks])


def test_before_a_run_every_task_waits() -> None:
    assert pending_records([PLAN, WRITE]) == [
        TaskRecord(0, "plan", "aa", "plan", "Guide", TaskState.PENDING_RUN),
        TaskRecord(1, "bb", "bb", None, None, TaskState.PENDING_RUN),
    ]


def test_a_task_runs_and_completes(records: TaskRecords) -> None:
    records.start(start(0, "aa", at=10.0))
    assert records.take_changed() == [
        TaskRecord(0, "plan", "aa", "plan", "Guide", TaskState.RUNNING, started_at=10.0),
    ]
    records.end(TaskEnded(0, "completed", 12.5, "planned", None, 2.5))
    (record,) = records.take_changed()
    assert record == TaskRecord(
        0,
        "plan",
        "aa",
        "plan",
        "Guide",
        TaskState.COMPLETED,
        started_at=10.0,
        finished_at=12.5,
        output="planned",
        execution_time=2.5,
    )


def test_only_what_changed_is_taken_and_once(records: TaskRecords) -> None:
    assert records.take_changed() == []
    records.start(start(1, "bb"))
    records.start(start(0, "aa"))
    assert [record.position for record in records.take_changed()] == [0, 1]
    assert records.take_changed() == []


def test_a_change_after_a_change_is_taken_as_it_is_last(records: TaskRecords) -> None:
    records.start(start(0, "aa"))
    records.end(TaskEnded(0, "failed", 2.0))
    (record,) = records.take_changed()
    assert (record.state, record.started_at, record.finished_at) == (TaskState.FAILED, 1.0, 2.0)


def test_the_agent_that_did_a_task_is_known_better_than_the_declared_one(records: TaskRecords) -> None:
    records.start(start(1, "bb", agent="Clerk"))
    records.end(TaskEnded(1, "completed", 2.0, "done", "Manager", 1.0))
    assert records.by_position[1].agent == "Manager"


def test_a_task_that_starts_again_is_as_if_it_had_not_ended(records: TaskRecords) -> None:
    records.start(start(0, "aa", at=1.0))
    records.end(TaskEnded(0, "completed", 2.0, "first", None, 1.0))
    records.start(start(0, "aa", at=3.0))
    record = records.by_position[0]
    assert (record.state, record.started_at) == (TaskState.RUNNING, 3.0)
    assert (record.finished_at, record.output) == (None, None)


def test_the_times_of_all_starts_of_a_task_add_up(records: TaskRecords) -> None:
    records.remember([replace(records.by_position[0], execution_time=2.5)])
    records.start(start(0, "aa", at=1.0))
    records.end(TaskEnded(0, "completed", 2.0, "first", None, 1.0))
    records.start(start(0, "aa", at=3.0))
    records.end(TaskEnded(0, "completed", 5.0, "second", None, 2.0))
    assert records.by_position[0].execution_time == 5.5


def test_what_an_earlier_attempt_has_completed_stays_as_it_was(records: TaskRecords) -> None:
    done = replace(records.by_position[0], state=TaskState.COMPLETED, output="first", execution_time=1.0)
    records.remember([done])
    records.start(start(1, "bb"))
    assert [record.position for record in records.take_changed()] == [1]
    assert records.by_position[0] == done


def test_a_task_that_ends_without_a_start_has_begun_at_its_end(records: TaskRecords) -> None:
    records.end(TaskEnded(0, "completed", 5.0, "done"))
    record = records.by_position[0]
    assert (record.state, record.started_at, record.finished_at) == (TaskState.COMPLETED, 5.0, 5.0)


def test_a_skipped_task_has_not_begun(records: TaskRecords) -> None:
    records.end(TaskEnded(0, "skipped", 5.0))
    record = records.by_position[0]
    assert (record.state, record.started_at, record.finished_at) == (TaskState.SKIPPED, None, 5.0)


def test_the_end_of_a_task_that_nobody_knows_is_passed_over(records: TaskRecords) -> None:
    records.end(TaskEnded(7, "completed", 5.0))
    assert records.take_changed() == []


def test_the_registered_tasks_change_nothing(records: TaskRecords) -> None:
    records.know(known(("aa", "plan"), ("bb", None)))
    assert (records.take_changed(), records.warnings) == ([], [])


def test_a_task_with_another_description_is_unregistered_and_warned_of(records: TaskRecords) -> None:
    records.know(known(("aa", "plan"), ("changed", "report")))
    (record,) = records.take_changed()
    assert record == TaskRecord(1, "report", "changed", "report", "Somebody", registered=False)
    (warning,) = records.warnings
    assert (warning.code, warning.task_id) == (UNSTABLE, "report")
    assert "report" in warning.message


def test_it_is_warned_of_once_though_it_starts_later(records: TaskRecords) -> None:
    records.know(known(("aa", "plan"), ("changed", None)))
    records.start(start(1, "changed"))
    assert len(records.warnings) == 1
    assert records.by_position[1].state is TaskState.RUNNING
    assert not records.by_position[1].registered


def test_a_task_that_starts_with_another_description_than_was_known_is_unregistered(records: TaskRecords) -> None:
    records.start(start(0, "today"))
    record = records.by_position[0]
    assert (record.task_id, record.registered, record.state) == ("today", False, TaskState.RUNNING)


def test_more_tasks_than_registered_get_records(records: TaskRecords) -> None:
    records.know(known(("aa", "plan"), ("bb", None), ("cc", "third")))
    records.start(start(3, "dd"))
    found = [(record.task_id, record.registered) for record in records.by_position.values()]
    assert found == [("plan", True), ("bb", True), ("third", False), ("dd", False)]
    assert [warning.task_id for warning in records.warnings] == ["third"], "the run itself has made dd"


def test_an_unregistered_task_does_not_take_the_id_of_another(records: TaskRecords) -> None:
    records.know(known(("aa", "plan"), ("bb", None), ("cc", "plan"), ("dd", "plan"), ("ee", "plan-2")))
    ids = [record.task_id for record in records.by_position.values()]
    assert ids == ["plan", "bb", "plan-2", "plan-3", "plan-2-2"]


def test_a_task_keeps_its_name_when_only_its_description_changed(records: TaskRecords) -> None:
    records.know(known(("changed", "plan"), ("bb", None)))
    assert records.by_position[0].task_id == "plan"


@pytest.mark.parametrize(("position", "expected"), [(0, "plan"), (1, "bb"), (9, None), (None, None)])
def test_a_task_is_named_by_its_place(records: TaskRecords, position: int | None, expected: str | None) -> None:
    assert records.task_id(position) == expected


@pytest.mark.parametrize(
    ("warning", "told"),
    [
        (Warning_("c", "m"), {"code": "c", "message": "m"}),
        (Warning_("c", "m", "plan"), {"code": "c", "message": "m", "task_id": "plan"}),
    ],
)
def test_a_warning_tells_its_task_where_it_has_one(warning: Warning_, told: dict[str, Any]) -> None:
    assert warning.to_json() == told

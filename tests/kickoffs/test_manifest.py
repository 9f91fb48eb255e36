from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.kickoffs.manifest import AgentDefinition, Manifest, TaskDefinition, identify

pytestmark = pytest.mark.unit


INSPECTED: dict[str, Any] = {
    "kind": "crew",
    "name": "Trip",
    "inputs_schema": {"type": "object", "properties": {"topic": {}, "days": {}}, "required": ["topic", "days"]},
    "tasks": [
        {"key": "aa", "name": "plan", "agent": "Guide"},
        {"key": "bb", "name": None, "agent": None},
    ],
    "agents": [{"role": "Guide", "goal": "guide"}],
    "framework": "crewai",
    "framework_version": "1.15.0",
    "warnings": [{"code": "c", "message": "m"}],
}


def ids(*tasks: tuple[str, str | None]) -> list[str]:
    return [task.task_id for task in identify([{"key": key, "name": name} for key, name in tasks])]


def test_a_task_is_called_by_its_name_else_by_its_key() -> None:
    assert ids(("aa", "plan"), ("bb", None), ("cc", "")) == ["plan", "bb", "cc"]


def test_a_repeated_task_gets_a_number() -> None:
    assert ids(("aa", None), ("aa", None), ("aa", None)) == ["aa", "aa-2", "aa-3"]


def test_a_number_that_is_somebodys_name_is_passed_over() -> None:
    assert ids(("1", "plan"), ("2", "plan-2"), ("3", "plan"), ("4", "plan-2")) == [
        "plan",
        "plan-2",
        "plan-3",
        "plan-2-2",
    ]


@given(st.lists(st.sampled_from(["a", "a-2", "a-2-2", "a-3"])))
def test_no_two_tasks_have_one_id(names: list[str]) -> None:
    found = ids(*(("key", name) for name in names))
    assert len(set(found)) == len(names)


def test_what_inspection_found_becomes_a_manifest() -> None:
    manifest = Manifest.from_json(INSPECTED)
    assert manifest.tasks == (TaskDefinition("plan", "aa", "plan", "Guide"), TaskDefinition("bb", "bb", None, None))
    assert manifest.agents == (AgentDefinition("Guide", "guide"),)
    assert manifest.required_inputs == ["topic", "days"]


def test_a_manifest_comes_back_from_json_as_it_was() -> None:
    manifest = Manifest.from_json(INSPECTED)
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest


def test_reading_a_manifest_leaves_what_was_read_as_it_was() -> None:
    before = json.dumps(INSPECTED)
    Manifest.from_json(INSPECTED)
    assert json.dumps(INSPECTED) == before


def test_a_project_without_agents_inputs_or_tasks_has_a_manifest() -> None:
    manifest = Manifest.from_json({"kind": "function", "name": "work", "inputs_schema": {}})
    assert (manifest.tasks, manifest.agents, manifest.required_inputs) == ((), (), [])

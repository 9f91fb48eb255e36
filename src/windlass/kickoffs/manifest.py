"""Describes what a version has: its kind, the schema of its inputs, and its tasks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """Describes a task as the project declares it.

    `key` is the MD5 of the description as written, with unfilled placeholders. `task_id` is the name of the task, or
    the key of a task without a name. It is made unique within the crew.
    """

    task_id: str
    key: str
    name: str | None
    agent: str | None


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    role: str
    goal: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Holds the data of a project that inspection found.

    `inputs_schema` is the JSON Schema 2020-12 of the inputs object. Its `required` is in the order in which the project
    mentions the inputs.
    """

    kind: str
    name: str
    inputs_schema: dict[str, Any]
    tasks: tuple[TaskDefinition, ...]
    agents: tuple[AgentDefinition, ...] = ()
    framework: str | None = None
    framework_version: str | None = None
    warnings: tuple[dict[str, str], ...] = field(default=())

    @property
    def required_inputs(self) -> list[str]:
        return list(self.inputs_schema.get("required", []))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Manifest:
        """Returns the manifest for a value from `to_json` or from an inspection.

        The tasks of an inspection have no `task_id` and get one here.
        """
        found = dict(value)
        found["tasks"] = identify(found.get("tasks", ()))
        found["agents"] = tuple(AgentDefinition(**agent) for agent in found.get("agents", ()))
        found["warnings"] = tuple(found.get("warnings", ()))
        return cls(**found)


def identify(tasks: list[dict[str, Any]]) -> tuple[TaskDefinition, ...]:
    """Gives each task its `task_id`: its name, else its key. Appends -2, -3 and so on to a repeated one."""
    seen: dict[str, int] = {}
    return tuple(_identified(task, seen) for task in tasks)


def _identified(task: dict[str, Any], seen: dict[str, int]) -> TaskDefinition:
    wanted = task.get("task_id") or task.get("name") or task["key"]
    task_id, number = wanted, 1
    while task_id in seen:
        number += 1
        task_id = f"{wanted}-{number}"
    seen[task_id] = number
    return TaskDefinition(task_id=task_id, key=task["key"], name=task.get("name"), agent=task.get("agent"))


def changes(before: Manifest, after: Manifest) -> dict[str, Any]:
    """Returns what differs for those who use the crew: its inputs, by name, and its tasks, by `task_id`."""
    return {
        "inputs": _differences(_inputs(before), _inputs(after)),
        "tasks": _differences(
            {task.task_id: task for task in before.tasks}, {task.task_id: task for task in after.tasks}
        ),
    }


def _inputs(manifest: Manifest) -> dict[str, Any]:
    properties, required = manifest.inputs_schema.get("properties", {}), manifest.required_inputs
    return {name: (schema, name in required) for name, schema in properties.items()}


def _differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[str]]:
    return {
        "added": [name for name in after if name not in before],
        "removed": [name for name in before if name not in after],
        "changed": [name for name, value in after.items() if name in before and before[name] != value],
    }

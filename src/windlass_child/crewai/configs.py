"""Checks the YAML files of classic crews, also of those in flows and functions.

The YAML library is a dependency of crewai. Without it the files are not checked, and the project can't be loaded
either.
"""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from windlass_child.checks.code import marks
from windlass_child.checks.found import Found, error, warning
from windlass_child.checks.nodes import Unreadable, compose, is_mapping, line_of, mapping, pairs, sequence
from windlass_child.process.process_env import without_dotenv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from windlass_child.checks.code import Code

CALLED = {"agents": "agent", "tasks": "task"}
YAML_HINT = "Correct the YAML of this line: its indentation, a colon or a quote."
USUAL = {
    "agents": ("role", "goal", "backstory", "llm", "tools", "allow_delegation", "max_iter", "verbose"),
    "tasks": ("description", "expected_output", "agent", "context", "tools", "output_file", "async_execution"),
}
"""The members that hints name. crewai knows about 50, most of them internal."""
Definition = ast.FunctionDef | ast.AsyncFunctionDef
MERGE = "<<"
"""The key with which YAML merges the members of another mapping."""
CONFIG = {"agents": "config/agents.yaml", "tasks": "config/tasks.yaml"}
"""The files that crewai reads if the class does not name others."""


@dataclass(frozen=True)
class CrewClass:
    """A class with @CrewBase."""

    path: Path
    node: ast.ClassDef

    def config(self, kind: str) -> str | None:
        """Returns the path of its YAML file of agents or tasks, relative to the folder of its module.

        Returns None if the class sets the config to something else than a path.
        """
        for statement in self.node.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            if any(isinstance(one, ast.Name) and one.id == f"{kind}_config" for one in targets):
                value = getattr(statement, "value", None)
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    return value.value
                if value is not None:
                    return None
        return CONFIG[kind]

    def methods(self, mark: str) -> set[str]:
        return {node.name for node in self.node.body if isinstance(node, ast.FunctionDef) and mark in marks(node)}

    def may_have(self, name: str, mark: str) -> bool:
        """Returns whether the class may have an agent or a task of this name. The names of decorators do not decide:
        `from crewai.project import task as step` renames one, and `research = task(make)` has none.
        """
        other = {"agent": "task", "task": "agent"}[mark]
        for node in self.node.body:
            if isinstance(node, Definition):
                if node.name == name and node.decorator_list and other not in marks(node):
                    return True
            elif isinstance(node, ast.Assign) and name in {getattr(one, "id", None) for one in node.targets}:
                return True
        return False

    def lines_that_read(self, kind: str) -> list[int]:
        """Returns the lines that read self.agents_config or self.tasks_config."""
        nodes = (node for node in ast.walk(self.node) if isinstance(node, ast.Attribute))
        return sorted(node.lineno for node in nodes if node.attr == f"{kind}_config")

    @property
    def stands_alone(self) -> bool:
        """Whether the class has no bases, from which it could inherit methods."""
        return not self.node.bases


def crews(code: Code) -> list[CrewClass]:
    return [
        CrewClass(path, node)
        for path, tree in code.trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and "CrewBase" in marks(node) and code.uses(path, node)
    ]


def known_members() -> dict[str, set[str]]:
    """Returns the members that crewai knows, by the kind of file.

    Returns {} without crewai, and for releases that list these members nowhere.
    """
    try:
        with without_dotenv():
            crewai, bases = import_module("crewai"), import_module("crewai.project.crew_base")
    except ImportError:
        return {}
    if not hasattr(bases, "AgentConfig"):
        return {}
    return {
        "agents": {*crewai.Agent.model_fields, *bases.AgentConfig.__annotations__},
        "tasks": {*crewai.Task.model_fields, *bases.TaskConfig.__annotations__},
    }


def findings(code: Code, known: Mapping[str, set[str]]) -> Iterator[Found]:
    """Yields the findings. `known` are the allowed members, by the kind of file. A kind without any allows all."""
    try:
        import_module("yaml")
    except ImportError:
        return
    seen: set[tuple[str, int | None, str]] = set()
    for crew in crews(code):
        for found in of_crew(code, crew, known):
            place = (found["file"] or "", found["line"], found["message"])
            if place not in seen:  # two crews may share their files
                seen.add(place)
                yield found


def of_crew(code: Code, crew: CrewClass, known: Mapping[str, set[str]]) -> Iterator[Found]:
    files = {kind: config_file(crew, kind) for kind in ("agents", "tasks")}
    read: dict[str, dict[str, Any] | None] = {}
    for kind, path in files.items():
        read[kind] = None
        if path is None:
            continue
        if not path.is_file():
            yield from missing(code, crew, kind, path)
            continue
        try:
            root = compose(path)
        except Unreadable as fault:
            yield error("yaml_syntax", f"{fault}.", code.named(path), fault.line, YAML_HINT)
            continue
        read[kind] = mapping(root)
        yield from of_entries(root, kind, code.named(path), known.get(kind, set()), code.words)
    if read["tasks"] is not None and files["tasks"]:
        yield from of_tasks(crew, read["tasks"], read["agents"], code.named(files["tasks"]))


def config_file(crew: CrewClass, kind: str) -> Path | None:
    named = crew.config(kind)
    return crew.path.parent / named if named else None


def missing(code: Code, crew: CrewClass, kind: str, path: Path) -> Iterator[Found]:
    for line in crew.lines_that_read(kind)[:1]:
        message = f"{crew.node.name} asks for its {kind}, and there is no {code.named(path)}."
        hint = f'Make it, or name the file that there is: {kind}_config = "..."'
        yield error("config_missing", message, code.named(crew.path), line, hint)


def of_tasks(crew: CrewClass, tasks: dict[str, Any], agents: dict[str, Any] | None, file: str) -> Iterator[Found]:
    methods = crew.methods("agent")
    for name, task in tasks.items():
        members = mapping(task)
        if (agent := members.get("agent")) is not None and isinstance(agent.value, str) and agent.value:
            yield from of_agent(crew, name, agent, methods, agents, file)
        for context in sequence(members.get("context")):
            if isinstance(context.value, str) and crew.stands_alone and not crew.may_have(context.value, "task"):
                message = (
                    f"the context of the task {name} names {context.value!r}, and {crew.node.name} has no such @task."
                )
                hint = f"There are: {', '.join(sorted(crew.methods('task')))}."
                yield error("unknown_context", message, file, line_of(context), hint)


def of_agent(
    crew: CrewClass, task: str, agent: Any, methods: set[str], agents: dict[str, Any] | None, file: str
) -> Iterator[Found]:
    """Checks the agent of a task. crewai finds the agent by the name of a method of the class."""
    if not crew.stands_alone or crew.may_have(agent.value, "agent"):
        return
    if agents is not None and agent.value in agents:
        message = f"the task {task} names the agent {agent.value!r}, and {crew.node.name} has no method of that name."
        yield error("unknown_agent", message, file, line_of(agent), f"Write it in {crew.path.name}, with @agent.")
        return
    message = f"the task {task} names the agent {agent.value!r}, which {crew.node.name} does not have."
    known = f"There are: {', '.join(sorted(methods))}." if methods else f"Write it in {crew.path.name}, with @agent."
    yield error("unknown_agent", message, file, line_of(agent), known)


def of_entries(root: Any, kind: str, file: str, known: set[str], words: set[str]) -> Iterator[Found]:
    """Yields the findings of one file. `words` are names that the project's code may use for members of its own."""
    yield from twice(root, f"the {CALLED[kind]}", file)
    for name, entry in pairs(root):
        called = f"the {CALLED[kind]} {name.value}"
        if is_mapping(entry):
            yield from twice(entry, f"{called}: the member", file)
            yield from unknown(entry, kind, called, file, known, words)
        elif name.value != MERGE:
            hint = "Write its members below it, each with a colon, or take it out."
            yield error("config_invalid", f"{called} has no members.", file, line_of(name), hint)


def twice(node: Any, called: str, file: str) -> Iterator[Found]:
    lines: dict[str, int] = {}
    for name, _ in pairs(node):
        if name.value in lines and name.value != MERGE:
            message = (
                f"{called} {name.value!r} is defined again. The definition in line {lines[name.value]} has no effect."
            )
            yield warning("config_unused", message, file, line_of(name), "Rename one of them, or remove it.")
        lines[name.value] = line_of(name)


def unknown(entry: Any, kind: str, called: str, file: str, known: set[str], words: set[str]) -> Iterator[Found]:
    for name, _ in pairs(entry):
        if not known or name.value in known | words | {MERGE}:
            continue
        near = difflib.get_close_matches(name.value, sorted(known), n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Take it out. The usual members are {', '.join(USUAL[kind])}."
        message = f"{called} has a member {name.value!r}, which crewai does not know."
        yield warning("config_unused", message, file, line_of(name), hint)

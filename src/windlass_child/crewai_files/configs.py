"""Checks the YAML files of classic crews, also of those in flows and functions.

It needs no package but PyYAML, which Windlass and crewai depend on. Without it the files are not checked.
"""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from windlass_child.project_files.code import marks
from windlass_child.project_files.found import Found, error, warning
from windlass_child.project_files.nodes import (
    Unreadable,
    compose,
    has_text,
    is_mapping,
    is_scalar,
    line_of,
    mapping,
    pairs,
    sequence,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from windlass_child.project_files.code import Code

CODE = "yaml_syntax"
CALLED = {"agents": "agent", "tasks": "task"}
YAML_HINT = "Correct the YAML of this line: its indentation, a colon or a quote."
USUAL = {
    "agents": ("role", "goal", "backstory", "llm", "tools", "allow_delegation", "max_iter", "verbose"),
    "tasks": ("description", "expected_output", "agent", "context", "tools", "output_file", "async_execution"),
}
"""The members that hints name. crewai knows about 50, most of them internal."""
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
MERGE = "<<"
"""The key with which YAML merges the members of another mapping."""
CONFIG = {"agents": "config/agents.yaml", "tasks": "config/tasks.yaml"}
"""The files that crewai reads if the class does not name others."""
MARKED = {
    "agents": {"tools": "tool", "step_callback": "callback", "cache_handler": "cache_handler"},
    "tasks": {
        "tools": "tool",
        "callbacks": "callback",
        "output_json": "output_json",
        "output_pydantic": "output_pydantic",
    },
}
"""The members that name methods of the class, with the decorators of these methods. crewai refuses other names."""
LISTS = {"agents": {"tools"}, "tasks": {"context", "tools", "callbacks"}}
TEXTS = {
    "agents": {"llm", "function_calling_llm", "step_callback"},
    "tasks": {"agent", "output_json", "output_pydantic"},
}
"""The members that must be a list and those that must be a text, if they are given."""
MARKS = {"agent", "task", "llm", *(mark for members in MARKED.values() for mark in members.values())}


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
        return {node.name for node in self.node.body if isinstance(node, Definition) and mark in marks(node)}

    def may_have(self, name: str, mark: str) -> bool:
        """Returns whether the class may have an agent, a task or another marked part of this name. The names of
        decorators do not decide: `from crewai.project import task as step` renames one, and `research = task(make)` has
        none.
        """
        others = MARKS - {mark}
        for node in self.node.body:
            if isinstance(node, Definition):
                if node.name == name and node.decorator_list and not others & marks(node):
                    return True
            elif isinstance(node, ast.Assign) and name in {getattr(one, "id", None) for one in node.targets}:
                return True
        return False

    def lines_that_read(self, kind: str) -> list[int]:
        """Returns the lines that read an entry of self.agents_config or self.tasks_config.

        Returns [] if the class sets the attribute itself.
        """
        nodes = list(ast.walk(self.node))
        of_kind = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr == f"{kind}_config"]
        if any(isinstance(node.ctx, ast.Store) for node in of_kind):
            return []
        read = {id(node.value) for node in nodes if isinstance(node, ast.Subscript)}
        return sorted(node.lineno for node in of_kind if id(node) in read)

    @property
    def stands_alone(self) -> bool:
        """Whether the class has no bases, from which it could inherit methods."""
        return not self.node.bases


def crews(code: Code) -> list[CrewClass]:
    return [
        CrewClass(path, node)
        for path, tree in code.trees_with_classes
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and "CrewBase" in marks(node) and code.uses(path, node)
    ]


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
            yield error(CODE, f"{fault}.", code.named(path), fault.line, YAML_HINT)
            continue
        read[kind] = mapping(root)
        allowed = known.get(kind, set())
        yield from of_entries(root, kind, code.named(path), allowed, code.words if allowed else set())
        yield from of_members(crew, read[kind] or {}, kind, code.named(path))
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


def of_members(crew: CrewClass, entries: dict[str, Any], kind: str, file: str) -> Iterator[Found]:
    """Yields an error for each member whose value has another form, or names a method that the class does not have."""
    for name, entry in entries.items():
        for member, value in mapping(entry).items():
            called = f"{member} of the {CALLED[kind]} {name}"
            if member in LISTS[kind] and has_text(value):
                message = f"{called} is the text {value.value!r}, and must be a list."
                yield error("config_invalid", message, file, line_of(value), f"Write {member}: [{value.value}]")
            elif member in TEXTS[kind] and not is_scalar(value):
                yield error("config_invalid", f"{called} must be a text.", file, line_of(value), "Write one name.")
            elif (mark := MARKED[kind].get(member)) and crew.stands_alone:
                yield from of_names(crew, called, mark, value, file)


def of_names(crew: CrewClass, called: str, mark: str, value: Any, file: str) -> Iterator[Found]:
    names = sequence(value) or [value]
    if not all(has_text(one) for one in names):  # crewai takes such a list as it is
        return
    for one in names:
        if not crew.may_have(one.value, mark):
            message = f"{called} names {one.value!r}, and {crew.node.name} has no method of that name with @{mark}."
            yield error("unknown_name", message, file, line_of(one), of_marked(crew, mark))


def of_marked(crew: CrewClass, mark: str) -> str:
    known = sorted(crew.methods(mark))
    return f"There are: {', '.join(known)}." if known else f"Write it in {crew.path.name}, with @{mark}."


def of_tasks(crew: CrewClass, tasks: dict[str, Any], agents: dict[str, Any] | None, file: str) -> Iterator[Found]:
    for name, task in tasks.items():
        members = mapping(task)
        if (agent := members.get("agent")) is not None and isinstance(agent.value, str) and agent.value:
            yield from of_agent(crew, name, agent, agents, file)
        for context in sequence(members.get("context")):
            if isinstance(context.value, str) and crew.stands_alone and not crew.may_have(context.value, "task"):
                message = (
                    f"the context of the task {name} names {context.value!r}, and {crew.node.name} has no such @task."
                )
                yield error("unknown_context", message, file, line_of(context), of_marked(crew, "task"))


def of_agent(crew: CrewClass, task: str, agent: Any, agents: dict[str, Any] | None, file: str) -> Iterator[Found]:
    """Checks the agent of a task. crewai finds the agent by the name of a method of the class."""
    if not crew.stands_alone or crew.may_have(agent.value, "agent"):
        return
    if agents is not None and agent.value in agents:
        message = f"the task {task} names the agent {agent.value!r}, and {crew.node.name} has no method of that name."
        yield error("unknown_agent", message, file, line_of(agent), f"Write it in {crew.path.name}, with @agent.")
        return
    message = f"the task {task} names the agent {agent.value!r}, which {crew.node.name} does not have."
    yield error("unknown_agent", message, file, line_of(agent), of_marked(crew, "agent"))


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

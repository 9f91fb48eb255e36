"""Checks the YAML files of classic crews, also of those in flows and functions.

The YAML library is a dependency of crewai. Without it the files are not checked, and the project can't be loaded
either.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from windlass_child.checks import entries
from windlass_child.checks.found import Found, error
from windlass_child.checks.nodes import Unreadable, compose, line_of, mapping, sequence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from windlass_child.checks.code import Code, CrewClass


def findings(code: Code, known: Mapping[str, set[str]]) -> Iterator[Found]:
    """Yields the findings. `known` are the allowed members, by the kind of file. A kind without any allows all."""
    try:
        import_module("yaml")
    except ImportError:
        return
    seen: set[tuple[str, int | None, str]] = set()
    for crew in code.crews:
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
            yield error("yaml_syntax", f"{fault}.", code.named(path), fault.line, "Correct it there.")
            continue
        read[kind] = mapping(root)
        yield from entries.findings(root, kind, code.named(path), known.get(kind, set()), code.words)
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
            if isinstance(context.value, str) and crew.stands_alone and context.value not in crew.methods("task"):
                message = (
                    f"the context of the task {name} names {context.value!r}, and {crew.node.name} has no such @task."
                )
                hint = f"There are: {', '.join(sorted(crew.methods('task')))}."
                yield error("unknown_context", message, file, line_of(context), hint)


def of_agent(
    crew: CrewClass, task: str, agent: Any, methods: set[str], agents: dict[str, Any] | None, file: str
) -> Iterator[Found]:
    """Checks the agent of a task. crewai finds the agent by the name of a method of the class."""
    if agent.value in methods or not crew.stands_alone:
        return
    if agents is not None and agent.value in agents:
        message = f"the task {task} names the agent {agent.value!r}, and {crew.node.name} has no method of that name."
        yield error("unknown_agent", message, file, line_of(agent), f"Write it in {crew.path.name}, with @agent.")
        return
    message = f"the task {task} names the agent {agent.value!r}, which {crew.node.name} does not have."
    known = f"There are: {', '.join(sorted(methods))}." if methods else f"Write it in {crew.path.name}, with @agent."
    yield error("unknown_agent", message, file, line_of(agent), known)

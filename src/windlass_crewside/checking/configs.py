"""The YAML files of classic crews, those in flows and functions too. crewai brings the library that reads them; without
it they are not looked at, and the project can't be loaded either.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from windlass_crewside.checking.found import Found, error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from windlass_crewside.checking.code import Code, CrewClass


class Unreadable(Exception):  # noqa: N818 - said of a file
    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


def findings(code: Code) -> Iterator[Found]:
    try:
        import_module("yaml")
    except ImportError:
        return
    seen: set[tuple[str, int | None, str]] = set()
    for crew in code.crews:
        for found in of_crew(code, crew):
            place = (found["file"] or "", found["line"], found["message"])
            if place not in seen:  # two crews may share their files
                seen.add(place)
                yield found


def of_crew(code: Code, crew: CrewClass) -> Iterator[Found]:
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
            read[kind] = mapping(compose(path))
        except Unreadable as fault:
            yield error("yaml_syntax", f"{fault}.", code.named(path), fault.line, "Correct it there.")
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
    """The class is asked for the agent, by the name of its method."""
    if agent.value in methods or not crew.stands_alone:
        return
    if agents is not None and agent.value in agents:
        message = f"the task {task} names the agent {agent.value!r}, and {crew.node.name} has no method of that name."
        yield error("unknown_agent", message, file, line_of(agent), f"Write it in {crew.path.name}, with @agent.")
        return
    message = f"the task {task} names the agent {agent.value!r}, which {crew.node.name} does not have."
    known = f"There are: {', '.join(sorted(methods))}." if methods else f"Write it in {crew.path.name}, with @agent."
    yield error("unknown_agent", message, file, line_of(agent), known)


def compose(path: Path) -> Any:
    """The file as nodes that know their lines. Raises Unreadable where crewai could not read it, or not as names."""
    yaml = import_module("yaml")
    try:
        text = path.read_text("utf-8")
        yaml.safe_load(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as fault:
        raise Unreadable(f"the file can't be read: {fault}", None) from None
    except yaml.YAMLError as fault:
        raise Unreadable(*in_words(fault)) from None
    if root is not None and not isinstance(root, yaml.MappingNode):
        raise Unreadable("it must hold names, each with a colon and its members below it", line_of(root))
    return root


def in_words(fault: Any) -> tuple[str, int | None]:
    mark = getattr(fault, "problem_mark", None) or getattr(fault, "context_mark", None)
    problem = getattr(fault, "problem", None) or str(fault).splitlines()[0]
    if mark is None:
        return problem, None
    return f"{problem} (column {mark.column + 1})", mark.line + 1


def mapping(node: Any) -> dict[str, Any]:
    """Its members by name; nothing for what is no mapping."""
    pairs = node.value if type(node).__name__ == "MappingNode" else []
    return {key.value: value for key, value in pairs if isinstance(key.value, str)}


def sequence(node: Any) -> list[Any]:
    return list(node.value) if type(node).__name__ == "SequenceNode" else []


def line_of(node: Any) -> int:
    return int(node.start_mark.line) + 1

"""Reports all errors in a declared crew or flow. Loading stops at the first one.

They are those that crewai finds, and the parts of a flow that crewai accepts but can't run.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass_child.crewai_files import flow_declarations
from windlass_child.process.error_text import sentence, text_of
from windlass_child.process.process_env import without_dotenv
from windlass_child.project_files.found import Found, error
from windlass_child.project_files.nodes import Unreadable, compose, line_of, pairs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass_child.protocol.messages import Project

HINT = "Change this value as the message describes."
FAULTS = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""The exceptions of crewai and of its parsing libraries for values that they do not check."""

Where = tuple[int | str, ...]
"""The path of a value in a file: names of members, and indexes in lists."""


JSON_LOADER, DEFINITIONS = "crewai.project.json_loader", "crewai.flow.flow_definition"


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


def findings(project: Project) -> list[Found]:
    """Returns the findings of a declaration. Returns [] without crewai, because the project can't be loaded either."""
    checks = {"json_crew": (of_json_crew, JSON_LOADER), "declarative_flow": (of_flow, DEFINITIONS)}
    check, module = checks.get(project.kind, (None, ""))
    if check is None:
        return []
    try:
        with without_dotenv():
            import_module(module)
    except ImportError:  # also where this crewai can't load such a project, which the load reports
        return []
    return list(check(project))


def of_json_crew(project: Project) -> Iterator[Found]:
    """Yields crewai's messages, which begin with the file. The server adds the lines."""
    loader = import_module(JSON_LOADER)
    try:
        loader.validate_crew_project(Path(project.root) / project.entrypoint)
    except loader.JSONProjectValidationError as fault:
        for text in fault.errors:
            words = text.replace(f"{project.root}{os.sep}", "")
            yield error("declaration_invalid", words, project.entrypoint, None, HINT)
    except FAULTS:  # values of types that crewai does not check: loading reports them
        return


def of_flow(project: Project) -> Iterator[Found]:
    path = Path(project.root) / project.entrypoint
    yield from flow_declarations.findings(Path(project.root), project.entrypoint)
    try:
        root = compose(path)
    except Unreadable:
        return
    pydantic = import_module("pydantic")
    try:
        definition = import_module(DEFINITIONS).FlowDefinition.from_declaration(path=path)
    except pydantic.ValidationError as fault:
        for path_of_it, message in in_words(root, fault.errors(include_url=False, include_input=False)):
            yield error("declaration_invalid", message, project.entrypoint, line_at(root, path_of_it), HINT)
        return
    except FAULTS as fault:
        kind = "" if isinstance(fault, ValueError) else f"a value in it is of another kind: {type(fault).__name__}: "
        words = text_of(fault).replace(f"{project.root}{os.sep}", "")
        yield error("declaration_invalid", sentence(kind + words), project.entrypoint, None, HINT)
        return
    for path_of_it, message, hint in unstarted(definition):
        yield error("never_runs", message, project.entrypoint, line_at(root, path_of_it), hint)


def in_words(root: Any, errors: list[Any]) -> Iterator[tuple[Where, str]]:
    """Yields one message for each wrong value.

    pydantic reports an error for each form that a value may have. If each form requires another word, the message lists
    all these words. Otherwise the form with the fewest errors is taken as the one that the author meant.
    """
    forms: dict[Where, dict[Any, list[tuple[Where, Any]]]] = {}
    for one in errors:
        there = existing_part(root, one["loc"])
        rest = one["loc"][len(there) :]
        if not rest or (one["type"] == "missing" and len(rest) == 1):
            yield there, f"{dotted(one['loc'])}{one['msg']}."
        else:
            forms.setdefault(there, {}).setdefault(rest[0], []).append((rest[1:], one))
    for there, found in forms.items():
        wanted = words_of_all(list(found.values()))
        nearest = min(found.values(), key=lambda faults: (len(words_in(faults)), len(faults)))
        messages = wanted or [(rest, one["msg"]) for rest, one in nearest]
        yield there, "; ".join(f"{dotted((*there, *rest))}{message}" for rest, message in messages) + "."


def words_of_all(forms: list[list[tuple[Where, Any]]]) -> list[tuple[Where, str]]:
    """Returns a message with the allowed words of a value, if each of several forms requires another word there."""
    places = [words_in(faults) for faults in forms]
    common = [rest for rest in places[0] if len(forms) > 1 and all(rest in words for words in places)]
    return [(rest, f"Input should be one of {', '.join(words[rest] for words in places)}") for rest in common]


def words_in(faults: list[tuple[Where, Any]]) -> dict[Where, str]:
    return {rest: one["ctx"]["expected"] for rest, one in faults if one["type"] == "literal_error"}


def dotted(path: Where) -> str:
    return f"{'.'.join(map(str, path))}: " if path else ""


def existing_part(node: Any, path: Where) -> Where:
    """Returns the beginning of a path, up to the last part that exists in the file."""
    for number, part in enumerate(path):
        if (found := member(node, part)) is None:
            return path[:number]
        node = found[1]
    return path


def line_at(node: Any, path: Where) -> int | None:
    line = None if node is None else line_of(node)
    for part in path:
        if (found := member(node, part)) is None:
            break
        line, node = line_of(found[0]), found[1]
    return line


def member(node: Any, part: int | str) -> tuple[Any, Any] | None:
    """Returns the node where a member begins and the node of its value, or None."""
    if type(node).__name__ == "SequenceNode" and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return next(((key, value) for key, value in pairs(node) if key.value == part), None)


def unstarted(definition: Any) -> Iterator[tuple[Where, str, str]]:
    """Yields the names that methods wait for and that no method emits. Yields nothing if a method may emit any name."""
    given = outcomes(definition)
    if given is None:
        return
    for name, method in definition.methods.items():
        for how in ("listen", "start"):
            for awaited in dict.fromkeys(names_in(getattr(method, how))):
                if awaited not in given:
                    message = f"the method {name} waits for {awaited!r}, which is no method and no outcome of one."
                    hint = f"There are: {', '.join(one for one in given if one != name)}."
                    yield ("methods", name, how), message, hint


def outcomes(definition: Any) -> list[str] | None:
    """Returns the names for which a method may wait: all methods, and the outcomes of routers.

    Returns None if a router does not declare its outcomes.
    """
    conversational = definition.conversational
    if conversational is not None and conversational.enabled:
        return None
    given = list(definition.methods)
    for method in definition.methods.values():
        asked = method.human_feedback.emit if method.human_feedback else None
        emitted = method.emit or asked
        if method.router and not emitted:
            return None
        given += emitted or []
    return list(dict.fromkeys(given))


def names_in(condition: Any) -> Iterator[str]:
    """Yields the names in a condition: "name", {"or": ["name", {"and": [...]}]}, or True."""
    if isinstance(condition, str):
        yield condition
    elif isinstance(condition, dict):
        for value in condition.values():
            yield from names_in(value)
    elif isinstance(condition, list):
        for one in condition:
            yield from names_in(one)

"""Reports all errors that crewai finds in a declared crew or flow. Loading stops at the first one."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass_child.checks import flows
from windlass_child.checks.found import Found, error
from windlass_child.checks.nodes import Unreadable, compose, line_of, pairs
from windlass_child.process.error_text import sentence, text_of
from windlass_child.process.process_env import without_dotenv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass_child.process.messages import Project

HINT = "Correct it there."
FAULTS = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""The exceptions of crewai and of its parsing libraries for values that they do not check."""

Where = tuple[int | str, ...]
"""The path of a value in a file: names of members, and indexes in lists."""


def findings(project: Project) -> list[Found]:
    """Returns the findings of a declaration. Returns [] without crewai, because the project can't be loaded either."""
    check = {"json_crew": of_json_crew, "declarative_flow": of_flow}.get(project.kind)
    if check is None:
        return []
    try:
        with without_dotenv():
            import_module("crewai")
    except ImportError:
        return []
    return list(check(project))


def of_json_crew(project: Project) -> Iterator[Found]:
    """Yields crewai's messages, which begin with the file. The server adds the lines."""
    loader = import_module("crewai.project.json_loader")
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
    try:
        root = compose(path)
    except Unreadable as fault:
        code = "jsonc_syntax" if path.suffix == ".json" else "yaml_syntax"
        yield error(code, f"{fault}.", project.entrypoint, fault.line, HINT)
        return
    pydantic = import_module("pydantic")
    try:
        definition = import_module("crewai.flow.flow_definition").FlowDefinition.from_declaration(path=path)
    except pydantic.ValidationError as fault:
        for path_of_it, message in in_words(root, fault.errors(include_url=False, include_input=False)):
            yield error("declaration_invalid", message, project.entrypoint, line_at(root, path_of_it), HINT)
        return
    except FAULTS as fault:
        kind = "" if isinstance(fault, ValueError) else f"a value in it is of another kind: {type(fault).__name__}: "
        words = text_of(fault).replace(f"{project.root}{os.sep}", "")
        yield error("declaration_invalid", sentence(kind + words), project.entrypoint, None, HINT)
        return
    for code, path_of_it, message, hint in flows.faults(definition, path.parent):
        yield error(code, message, project.entrypoint, line_at(root, path_of_it), hint)


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

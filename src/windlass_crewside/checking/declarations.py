"""What crewai finds wrong with a declared crew or flow: all of it, where loading stops at the first."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass_crewside.checking import flows
from windlass_crewside.checking.found import Found, error
from windlass_crewside.checking.nodes import Unreadable, compose, line_of, pairs
from windlass_crewside.faults import sentence, text_of
from windlass_crewside.surroundings import without_dotenv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass_crewside.messages import Project

HINT = "Correct it there."
FAULTS = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""What crewai, or the library that reads for it, raises of values that it does not look for."""

Where = tuple[int | str, ...]
"""Of a value in a file: names of members, and numbers in lists."""


def findings(project: Project) -> list[Found]:
    """None without crewai, for want of which the project can't be loaded either."""
    told = {"json_crew": of_json_crew, "declarative_flow": of_flow}.get(project.kind)
    if told is None:
        return []
    try:
        with without_dotenv():
            import_module("crewai")
    except ImportError:
        return []
    return list(told(project))


def of_json_crew(project: Project) -> Iterator[Found]:
    """Messages begin with the file, as crewai writes them; the server knows the lines."""
    loader = import_module("crewai.project.json_loader")
    try:
        loader.validate_crew_project(Path(project.root) / project.entrypoint)
    except loader.JSONProjectValidationError as fault:
        for text in fault.errors:
            words = text.replace(f"{project.root}{os.sep}", "")
            yield error("declaration_invalid", words, project.entrypoint, None, HINT)
    except FAULTS:  # values of another kind than crewai looks for: loading meets them too
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


def in_words(root: Any, told: list[Any]) -> Iterator[tuple[Where, str]]:
    """One for each value that is wrong. What may have one of several forms is told of by each of them: where each
    wants another word, all of these; else the nearest form, the one with the fewest faults, is what its author meant.
    """
    forms: dict[Where, dict[Any, list[tuple[Where, Any]]]] = {}
    for one in told:
        there = that_is_there(root, one["loc"])
        rest = one["loc"][len(there) :]
        if not rest or (one["type"] == "missing" and len(rest) == 1):
            yield there, f"{dotted(one['loc'])}{one['msg']}."
        else:
            forms.setdefault(there, {}).setdefault(rest[0], []).append((rest[1:], one))
    for there, found in forms.items():
        wanted = words_of_all(list(found.values()))
        nearest = min(found.values(), key=lambda faults: (len(words_in(faults)), len(faults)))
        said = wanted or [(rest, one["msg"]) for rest, one in nearest]
        yield there, "; ".join(f"{dotted((*there, *rest))}{message}" for rest, message in said) + "."


def words_of_all(forms: list[list[tuple[Where, Any]]]) -> list[tuple[Where, str]]:
    """The words that there are for a value, where none of several forms takes the one that stands there."""
    places = [words_in(faults) for faults in forms]
    common = [rest for rest in places[0] if len(forms) > 1 and all(rest in words for words in places)]
    return [(rest, f"Input should be one of {', '.join(words[rest] for words in places)}") for rest in common]


def words_in(faults: list[tuple[Where, Any]]) -> dict[Where, str]:
    return {rest: one["ctx"]["expected"] for rest, one in faults if one["type"] == "literal_error"}


def dotted(path: Where) -> str:
    return f"{'.'.join(map(str, path))}: " if path else ""


def that_is_there(node: Any, path: Where) -> Where:
    """The parts of a path, from its begin, that lead somewhere in the file."""
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
    """Where it begins, and its value."""
    if type(node).__name__ == "SequenceNode" and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return next(((key, value) for key, value in pairs(node) if key.value == part), None)

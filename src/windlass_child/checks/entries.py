"""Checks the entries of a crew's YAML files: those that crewai can't read, and those that it ignores."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING, Any

from windlass_child.checks.found import Found, error, warning
from windlass_child.checks.nodes import is_mapping, line_of, pairs
from windlass_child.process.process_env import without_dotenv

if TYPE_CHECKING:
    from collections.abc import Iterator

CALLED = {"agents": "agent", "tasks": "task"}
MERGE = "<<"
"""The key with which YAML merges the members of another mapping."""


def known_members() -> dict[str, set[str]]:
    """Returns the members that crewai knows, by the kind of file. Returns {} without crewai."""
    try:
        with without_dotenv():
            crewai, bases = import_module("crewai"), import_module("crewai.project.crew_base")
    except ImportError:
        return {}
    return {
        "agents": {*crewai.Agent.model_fields, *bases.AgentConfig.__annotations__},
        "tasks": {*crewai.Task.model_fields, *bases.TaskConfig.__annotations__},
    }


def findings(root: Any, kind: str, file: str, known: set[str], words: set[str]) -> Iterator[Found]:
    """Yields the findings of one file. `words` are names that the project's code may use for members of its own."""
    yield from twice(root, f"the {CALLED[kind]}", file)
    for name, entry in pairs(root):
        called = f"the {CALLED[kind]} {name.value}"
        if is_mapping(entry):
            yield from twice(entry, f"{called}: the member", file)
            yield from unknown(entry, called, file, known, words)
        elif name.value != MERGE:
            hint = "Write its members below it, each with a colon, or take it out."
            yield error("config_invalid", f"{called} has no members.", file, line_of(name), hint)


def twice(node: Any, called: str, file: str) -> Iterator[Found]:
    lines: dict[str, int] = {}
    for name, _ in pairs(node):
        if name.value in lines and name.value != MERGE:
            message = f"{called} {name.value!r} stands here again: that in line {lines[name.value]} counts for nothing."
            yield warning("config_unused", message, file, line_of(name), "Give one another name, or take it out.")
        lines[name.value] = line_of(name)


def unknown(entry: Any, called: str, file: str, known: set[str], words: set[str]) -> Iterator[Found]:
    for name, _ in pairs(entry):
        if not known or name.value in known | words | {MERGE}:
            continue
        near = difflib.get_close_matches(name.value, sorted(known), n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(sorted(known))}."
        message = f"{called} has a member {name.value!r}, which crewai does not know."
        yield warning("config_unused", message, file, line_of(name), hint)

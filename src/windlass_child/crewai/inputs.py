"""Finds the inputs of a crew: the placeholders in its texts, by the same pattern as crewai's."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
import textwrap
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from crewai import Crew

from windlass_child.crewai.callbacks import before_kickoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_\-]*)}")
"""The pattern with which crewai fills in placeholders.

`Crew.fetch_inputs` uses another one, which takes JSON examples for placeholders and does not read output_file.
"""

TASK_FIELDS = ("description", "expected_output", "output_file")
AGENT_FIELDS = ("role", "goal", "backstory")
MOST_PLACES = 3
"""Places that the description of an input names."""
NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass
class Input:
    name: str
    required: bool
    used_in: list[str] = field(default_factory=list)
    default: dict[str, Any] = field(default_factory=dict)
    """`{"default": value}`, or {} for an input without a default."""


def find(crew: Any, preparations: Sequence[Callable[..., Any]] = (), defaults: Mapping[str, Any] = NONE) -> list[Input]:
    """Returns the inputs in reading order: those of tasks, those of agents, then defaults that no text uses.

    `preparations` are the crew's @before_kickoff functions. An input that they set is not required.
    """
    provided = provided_by(preparations) | defaults.keys()
    found: dict[str, Input] = {}
    for name, place in mentions(crew):
        known = found.setdefault(name, Input(name, required=name not in provided))
        if place not in known.used_in:
            known.used_in.append(place)
    for name, value in defaults.items():
        found.setdefault(name, Input(name, required=False)).default = {"default": value}
    return list(found.values())


def schema(inputs: list[Input], crew: Any) -> dict[str, Any]:
    """Returns the JSON Schema of the inputs object. Placeholders have no type: they accept any JSON."""
    found = {
        "type": "object",
        "properties": {found.name: {"description": described(found)} | found.default for found in inputs},
        "required": [found.name for found in inputs if found.required],
    }
    return found if reads_others(crew) else found | {"additionalProperties": False}


def reads_others(crew: Any) -> bool:
    """Returns whether code of the project gets the inputs, which may use any of them."""
    return bool(before_kickoff(crew)) or type(crew) is not Crew


def described(found: Input) -> str:
    if not found.used_in:
        return "Has a default, and is in no text."
    named = found.used_in if len(found.used_in) <= MOST_PLACES else found.used_in[: MOST_PLACES - 1]
    more = len(found.used_in) - len(named)
    return f"Used in {', '.join(named)}{f' and {more} more places' if more else ''}."


def mentions(crew: Any) -> Iterator[tuple[str, str]]:
    for number, task in enumerate(crew.tasks, start=1):
        yield from mentions_in(task, TASK_FIELDS, f"task {task.name or number}")
    for agent in crew.agents:
        yield from mentions_in(agent, AGENT_FIELDS, f"agent {agent.role.strip()}")


def mentions_in(owner: Any, fields: tuple[str, ...], called: str) -> Iterator[tuple[str, str]]:
    for name in fields:
        for placeholder in PLACEHOLDER.findall(getattr(owner, name) or ""):
            yield placeholder, f"the {name} of {called}"


def provided_by(preparations: Sequence[Callable[..., Any]]) -> set[str]:
    """Returns the inputs that these functions set and do not read."""
    names: set[str] = set()
    for preparation in preparations:
        with contextlib.suppress(OSError, TypeError, SyntaxError):  # the source is not available
            tree = ast.parse(textwrap.dedent(inspect.getsource(preparation)))
            names |= (keys(tree, ast.Store) | returned_keys(tree)) - keys(tree, ast.Load)
    return names


def returned_keys(tree: ast.AST) -> set[str]:
    """Returns the string keys of dictionaries in returned values: `return {**inputs, "key": value}`."""
    returned = (node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None)
    written = (node for value in returned for node in ast.walk(value) if isinstance(node, ast.Dict))
    found = (key.value for node in written for key in node.keys if isinstance(key, ast.Constant))
    return {key for key in found if isinstance(key, str)}


def keys(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """Returns the string keys of subscripts, inputs["key"], that are written (Store) or read (Load)."""
    subscripts = (node for node in ast.walk(tree) if isinstance(node, ast.Subscript) and isinstance(node.ctx, context))
    return {
        node.slice.value
        for node in subscripts
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
    }

"""The methods of a flow class, and the form in which the installed crewai runs them and stores the flow's state."""

from __future__ import annotations

import dis
import functools
import inspect
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from crewai.flow.flow import Flow
from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKS = ("__is_flow_method__", "__is_start_method__", "__trigger_methods__", "__is_router__")
"""Attributes that the decorators of older releases set on the methods of a flow."""

GIVES_EVENT = "tuple" in str(inspect.signature(Flow._execute_method).return_annotation)  # noqa: SLF001 - as the journal
"""Whether the engine gets the output of a method with the id of an event, or the output alone."""

KEEPS_NAMES = hasattr(Flow, "flow_definition")
"""Whether the engine stores the outputs of methods with the names of the methods."""

ASKS_APART = hasattr(Flow, "_run_human_feedback_step")
"""Whether the engine asks a person after the code of a method has ended. In older releases the code asks."""


@dataclass
class Method:
    """A method of a flow of a crewai that has no flow definitions. The members are those of its definitions."""

    description: str | None
    is_start: bool
    human_feedback: Any


@dataclass
class Shape:
    methods: dict[str, Method] = field(default_factory=dict)
    conversational: Any = None


def shape_of(flow_class: Any) -> Any:
    """Returns crewai's definition of a flow class, or the same members where this crewai has no definitions."""
    if hasattr(flow_class, "flow_definition"):
        return flow_class.flow_definition()
    found = {name: value for name, value in vars(flow_class).items() if any(hasattr(value, mark) for mark in MARKS)}
    return Shape({name: method_of(value) for name, value in found.items()})


def method_of(marked: Any) -> Method:
    text = (getattr(marked, "__doc__", None) or "").strip().split("\n", 1)[0].strip()
    return Method(
        text or None, hasattr(marked, "__is_start_method__"), getattr(marked, "__human_feedback_config__", None)
    )


def state_of(flow: Any) -> Any:
    """Returns the state of a flow object, without the proxy that some releases put around it."""
    return flow._state if hasattr(type(flow.state), "_proxy_state") else flow.state  # noqa: SLF001 - as above


@functools.cache
def own_attributes() -> frozenset[str]:
    """Returns the attributes that crewai's code sets on flow objects, where they are not declared as fields.

    A zygote calls this before its forks.
    """
    if issubclass(Flow, BaseModel):
        return frozenset()
    functions = [value for kind in Flow.__mro__ for value in vars(kind).values() if isinstance(value, FunctionType)]
    return frozenset(name for function in functions for name in stored(function.__code__))


def stored(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname == "STORE_ATTR":
            yield str(instruction.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from stored(inner)

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

from windlass_child.crewai.features import has, has_fields, optional

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKS = ("__is_flow_method__", "__is_start_method__", "__trigger_methods__", "__is_router__")
"""Attributes that the decorators of older releases set on the methods of a flow."""

GIVES_EVENT = "tuple" in str(inspect.signature(Flow._execute_method).return_annotation)  # noqa: SLF001 - as the journal
"""Whether the engine gets the output of a method with the id of an event, or the output alone."""

DESCRIBES = has_fields(optional("crewai.flow.flow_definition:FlowMethodDefinition"), "description")
"""Whether definitions of flows have the descriptions of methods. Those of crewai 1.14.7 have none."""

KEEPS_NAMES = has("crewai.flow.runtime._outputs")
"""Whether the engine stores the outputs of methods with the names of the methods."""

ASKS_APART = hasattr(Flow, "_run_human_feedback_step")
"""Whether the engine asks a person after the code of a method has ended. In older releases the code asks."""


@dataclass
class Method:
    """A method of a flow, with the members that crewai's definitions of methods have."""

    description: str | None
    is_start: bool
    human_feedback: Any


@dataclass
class Shape:
    methods: dict[str, Method] = field(default_factory=dict)
    conversational: Any = None


def shape_of(flow_class: Any) -> Any:
    """Returns crewai's definition of a flow class, or the same members where this crewai does not define all."""
    if not hasattr(flow_class, "flow_definition"):
        return Shape({name: method_of(value) for name, value in vars(flow_class).items() if is_marked(value)})
    definition = flow_class.flow_definition()
    if DESCRIBES:
        return definition
    methods = {
        name: Method(summary(getattr(flow_class, name, None)), one.is_start, one.human_feedback)
        for name, one in definition.methods.items()
    }
    return Shape(methods, definition.conversational)


def is_marked(value: Any) -> bool:
    return any(hasattr(value, mark) for mark in MARKS)


def method_of(marked: Any) -> Method:
    return Method(
        summary(marked), hasattr(marked, "__is_start_method__"), getattr(marked, "__human_feedback_config__", None)
    )


def summary(method: Any) -> str | None:
    """Returns the first line of the docstring."""
    return (getattr(method, "__doc__", None) or "").strip().split("\n", 1)[0].strip() or None


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

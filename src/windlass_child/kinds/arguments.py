"""Builds the arguments of a function from the JSON inputs, by the annotations of its parameters."""

from __future__ import annotations

import dataclasses
import enum
import types
from typing import TYPE_CHECKING, Annotated, Any, Union, cast, get_args, get_origin

from windlass_child.kinds.schemas import hints_of

if TYPE_CHECKING:
    from collections.abc import Callable


def built(annotation: Any, value: Any) -> Any:
    """Returns an instance for an annotation with a model, a dataclass or an enum, and else `value` unchanged.

    Raises ValueError or TypeError.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return built(arguments[0], value)
    if origin in (Union, types.UnionType):
        return built_optional(arguments, value)
    if origin is list and arguments and isinstance(value, list):
        return [built(arguments[0], item) for item in value]
    if isinstance(annotation, type):
        return built_class(annotation, value)
    return value


def built_optional(choices: tuple[Any, ...], value: Any) -> Any:
    """Builds X for "X or None". Returns the value of any other union unchanged, because its type is ambiguous."""
    kinds = [choice for choice in choices if choice is not type(None)]
    return value if value is None or len(kinds) != 1 else built(kinds[0], value)


def built_class(annotation: Any, value: Any) -> Any:
    if hasattr(annotation, "model_validate"):
        return annotation.model_validate(value)
    if issubclass(annotation, enum.Enum):
        return annotation(value)
    if dataclasses.is_dataclass(annotation) and isinstance(value, dict):
        hints, make = hints_of(annotation), cast("Callable[..., Any]", annotation)
        return make(**{name: built(hints.get(name, Any), item) for name, item in value.items()})
    return value

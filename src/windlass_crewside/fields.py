"""What the fields of a message may hold, read from their annotations.

Whoever sends one may run code of others by then: a value that is not of its field's type is refused before it is used.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Container
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

Take = Callable[[Any], Any]
"""A value as JSON gave it -> as its field holds it. Raises ValueError, TypeError or OverflowError for any other."""

WHOLE_NUMBERS = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True)
class Between:
    """Numbers, both ends included."""

    low: float
    high: float

    def __contains__(self, value: Any) -> bool:
        return bool(self.low <= value <= self.high)


@dataclass(frozen=True)
class Nested:
    """JSON of no more levels than this: what takes it apart, or writes it again, does so by recursion."""

    levels: int

    def __contains__(self, value: Any) -> bool:
        level = [value]
        for _ in range(self.levels):
            inner = (one.values() if type(one) is dict else one for one in level)
            level = [item for items in inner for item in items if type(item) is dict or type(item) is list]
            if not level:
                return True
        return False


class Ascii:
    def __contains__(self, value: Any) -> bool:
        return bool(value.isascii())


class PrintableAscii:
    def __contains__(self, value: Any) -> bool:
        return bool(value.isascii() and value.isprintable())


def maker(kind: type[Any]) -> Take:
    """From a dictionary of its fields to a dataclass or a TypedDict."""
    takes = {name: take(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}

    def make(fields: dict[str, Any]) -> Any:
        return kind(**{name: takes[name](value) for name, value in fields.items()})

    def make_whole(fields: dict[str, Any]) -> Any:
        if fields.keys() != takes.keys():
            raise TypeError
        return make(fields)

    return make_whole if is_typeddict(kind) else make  # a dataclass knows itself what must be there


def take(annotation: Any) -> Take:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return limited(take(arguments[0]), arguments[1])
    if origin in (Union, types.UnionType):
        (kind,) = [one for one in arguments if one is not type(None)]
        return optional(take(kind))
    if origin is list:
        return items(take(arguments[0]))
    if origin is dict:
        return exactly(dict) if arguments[1] is Any else values(take(arguments[1]))
    if is_dataclass(annotation) or is_typeddict(annotation):
        return maker(annotation)
    return PLAIN[annotation]


def exactly(kind: type[Any]) -> Take:
    def take_one(value: Any) -> Any:
        if type(value) is not kind:  # a boolean is an int, too
            raise TypeError
        return value

    return take_one


def whole_number(value: Any) -> int:
    if type(value) is not int or value not in WHOLE_NUMBERS:
        raise TypeError
    return value


def number(value: Any) -> float:
    if type(value) is not int and type(value) is not float:
        raise TypeError
    return float(value)


def optional(of: Take) -> Take:
    return lambda value: None if value is None else of(value)


def items(of: Take) -> Take:
    whole = exactly(list)
    return lambda value: [of(item) for item in whole(value)]


def values(of: Take) -> Take:
    whole = exactly(dict)
    return lambda value: {name: of(item) for name, item in whole(value).items()}


def limited(of: Take, allowed: Container[Any]) -> Take:
    def take_allowed(value: Any) -> Any:
        taken = of(value)
        if taken not in allowed:
            raise ValueError
        return taken

    return take_allowed


PLAIN: dict[Any, Take] = {str: exactly(str), bool: exactly(bool), int: whole_number, float: number}

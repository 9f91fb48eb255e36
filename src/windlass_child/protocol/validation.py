"""Validates the fields of messages by their annotations.

The sender of a message may run code of others: a value that is not of its field's type is refused before its use.
"""

from __future__ import annotations

import json
import os
import types
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

Take = Callable[[Any], Any]
"""Converts a JSON value to that of its field. Raises ValueError, TypeError or OverflowError for an invalid value."""

WHOLE_NUMBERS = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True)
class Between:
    """Contains the numbers from `low` to `high`, both included."""

    low: float
    high: float

    def __contains__(self, value: Any) -> bool:
        return bool(self.low <= value <= self.high)


class WaitStatuses:
    """Contains the wait statuses of ended processes, as the kernel encodes them."""

    def __contains__(self, status: Any) -> bool:
        return status in range(1 << 16) and (os.WIFEXITED(status) or os.WIFSIGNALED(status))


@dataclass(frozen=True)
class Nested:
    """Contains JSON of at most this many levels: parsers and writers of JSON recurse once per level."""

    levels: int

    def __contains__(self, value: Any) -> bool:
        level = [value]
        for _ in range(self.levels):
            inner = (one.values() if type(one) is dict else one for one in level)
            level = [item for items in inner for item in items if type(item) is dict or type(item) is list]
            if not level:
                return True
        return False


@dataclass(frozen=True)
class Apart:
    """Marks a field whose value may follow the head of its frame when it is large: at most `most` bytes.

    `raw` fields hold ASCII text that is sent unchanged. Other fields are sent as JSON text. The server decodes the JSON
    of `read` fields, and keeps the JSON of other fields as Encoded. `always` fields also follow the head of a small
    frame.
    """

    most: int
    raw: bool = False
    read: bool = False
    always: bool = False


class Encoded:
    """JSON text in ASCII from a frame, not decoded. It is not checked that the text is JSON."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | bytearray) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoded) and self.data == other.data

    __hash__ = None  # type: ignore[assignment]  # its bytes are mutable

    @property
    def value(self) -> Any:
        """The decoded JSON. Raises ValueError when it is not JSON. Decoding a large text takes seconds."""
        return json.loads(self.data)


class Ascii:
    def __contains__(self, value: Any) -> bool:
        return bool(value.isascii())


@dataclass(frozen=True)
class PrintableAscii:
    longest: int

    def __contains__(self, value: Any) -> bool:
        return bool(len(value) <= self.longest and value.isascii() and value.isprintable())


def maker(kind: type[Any]) -> Take:
    """Returns a function that makes a dataclass or a TypedDict from a dictionary of its fields."""
    takes = {name: take(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}

    def make(fields: dict[str, Any]) -> Any:
        return kind(**{name: takes[name](value) for name, value in fields.items()})

    def make_whole(fields: dict[str, Any]) -> Any:
        if fields.keys() != takes.keys():
            raise TypeError
        return make(fields)

    return make_whole if is_typeddict(kind) else make  # a dataclass checks for missing fields in its constructor


def take(annotation: Any) -> Take:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return limited(take(arguments[0]), arguments[1:])
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
        if type(value) is not kind:  # isinstance would accept a boolean as an int
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


def limited(of: Take, allowed: Sequence[Container[Any]]) -> Take:
    limits = [one for one in allowed if not isinstance(one, Apart)]

    def take_allowed(value: Any) -> Any:
        taken = of(value)
        if taken is not None:
            for limit in limits:
                if taken not in limit:
                    raise ValueError
        return taken

    if any(isinstance(one, Apart) and not one.read for one in allowed):
        return lambda value: value if type(value) is Encoded else take_allowed(value)
    return take_allowed if limits else of


PLAIN: dict[Any, Take] = {str: exactly(str), bool: exactly(bool), int: whole_number, float: number}


def apart_in(kind: type[Any]) -> dict[str, Apart]:
    """Returns the fields of a message that may follow its head, in their order in the frame."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        marks = [one for one in get_args(hint)[1:] if isinstance(one, Apart)] if get_origin(hint) is Annotated else []
        if marks:
            found[name] = marks[0]
    return found

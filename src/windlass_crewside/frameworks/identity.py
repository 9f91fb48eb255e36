"""By what a step is known in every attempt: what it does, what it is given, and which of its like it is."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import decimal
import enum
import functools
import hashlib
import heapq
import json
import pathlib
import threading
import types
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass_crewside.frameworks.values import encoded
from windlass_crewside.veil import nameless

if TYPE_CHECKING:
    from collections.abc import Iterator

UNNAMED = "<lambda>"
KNOWN = "same_in_every_attempt"
"""A class with this attribute has one object in each attempt."""

CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type)
FIXED = (
    str,
    int,
    float,
    bytes,
    enum.Enum,
    dt.date,
    dt.time,
    dt.timedelta,
    decimal.Decimal,
    pathlib.PurePath,
    uuid.UUID,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """`digest` is the same for equal values. With `vague` it may be the same for others too: a part of what is given
    has no form in the journal, and counts by its class alone. With `blind` all that is given counts so. `plain` is work
    of which all is known that it has from the code around it.
    """

    digest: str
    vague: bool = False
    blind: bool = False
    plain: bool = True

    @classmethod
    def of(cls, value: Any) -> Identity:
        forms = Forms()
        return cls(digest_of(forms.of(value)), forms.vague)

    @classmethod
    def of_call(cls, work: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Identity:
        while isinstance(work, functools.partial):
            work, arguments, named = work.func, (*work.args, *arguments), {**work.keywords, **named}
        given, does = Forms(), Forms()
        form = [list(map(given.of, arguments)), sorted([name, given.of(item)] for name, item in named.items())]
        blind = 0 < len(arguments) + len(named) == given.unknown
        return cls(digest_of([*form, does.of(work)]), given.vague, blind, not does.vague)


def digest_of(form: Any) -> str:
    try:
        text = json.dumps(form, sort_keys=True)
    except (ValueError, RecursionError):  # a number of thousands of digits, or what is nested as deeply
        text = nameless(form)
    return hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


class Forms:
    """`unknown` counts the values of which nothing but their class is known, `vague` is of any part of any."""

    def __init__(self) -> None:
        self.vague = False
        self.unknown = 0
        self._within: set[int] = set()

    def of(self, value: Any) -> Any:
        form = self._form(value)
        self.unknown += form == nameless(value)
        return form

    def _form(self, value: Any) -> Any:
        if known := getattr(type(value), KNOWN, None):
            return known
        with contextlib.suppress(Exception):  # properties of the project's classes are asked
            return encoded(value)
        with contextlib.suppress(Exception), self._once_within(value):
            return self._form_of_parts(value)
        self.vague = True
        return nameless(value)

    @contextlib.contextmanager
    def _once_within(self, value: Any) -> Iterator[None]:
        """Raises ValueError for what holds itself."""
        if id(value) in self._within:
            raise ValueError
        self._within.add(id(value))
        try:
            yield
        finally:
            self._within.discard(id(value))

    def _form_of_parts(self, value: Any) -> Any:
        """Of what has no form as a whole."""
        match value:
            case list() | tuple():
                return list(map(self._form, value))
            case dict():
                return sorted([json.dumps(self._form(name)), self._form(item)] for name, item in value.items())
            case types.ModuleType():
                return value.__name__
            case types.MethodType():
                return [self._form(value.__func__), self._form(value.__self__)]
            case types.FunctionType():
                return self._form_of_function(value)
            case type() | types.BuiltinFunctionType():
                return [value.__module__, value.__qualname__]
        raise TypeError(value)

    def _form_of_function(self, function: types.FunctionType) -> Any:
        """With what it has from the code around it."""
        code = function.__code__
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        around = list(map(self._form_around, [*defaults, *cells]))
        names = [*code.co_names, *map(repr, filter(is_fixed, code.co_consts))] if function.__name__ == UNNAMED else []
        return [function.__module__, function.__qualname__, names, around]

    def _form_around(self, value: Any) -> Any:
        """What may change while the run goes on, a list of results say, tells nothing: a finished step is not run
        again, and leaves nothing there.
        """
        if is_fixed(value) or isinstance(value, CODE) or hasattr(type(value), KNOWN):
            return self._form(value)
        self.vague = True
        return nameless(value)


def is_fixed(value: Any) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(is_fixed, value))
    return value is None or isinstance(value, FIXED)


class Kind:
    """All steps of one name that begin in one place and are the same: numbers tell them from one another, in the order
    in which they begin. The number of one that failed is free again.

    `alike` are steps that numbers can't tell apart either, for another attempt may begin them in another order: those
    of vague arguments, and those of work that is not plain and was begun by more than one thread or asyncio task.
    """

    def __init__(self, *, alike: bool) -> None:
        self.alike = alike
        self._last = 0
        self._free: list[int] = []
        self._beginner: object = None

    def begin(self, identity: Identity) -> int:
        number = heapq.heappop(self._free) if self._free else self._last + 1
        self._last = max(self._last, number)
        here = thread_of_control()
        self._beginner = self._beginner or here
        elsewhere = not identity.plain and here is not self._beginner
        self.alike = self.alike or identity.blind or (identity.vague and number > 1) or elsewhere
        return number

    def fail(self, number: int) -> None:
        heapq.heappush(self._free, number)


def thread_of_control() -> object:
    """What does one thing after the other."""
    try:
        return asyncio.current_task() or threading.current_thread()
    except RuntimeError:  # no loop runs here
        return threading.current_thread()

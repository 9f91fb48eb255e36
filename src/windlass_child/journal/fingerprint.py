"""Identifies a step across attempts: by its function, its arguments, and its number among equal steps."""

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

from windlass_child.journal.value_codec import encoded
from windlass_child.masking.redaction import nameless

if TYPE_CHECKING:
    from collections.abc import Iterator

UNNAMED = "<lambda>"
KNOWN = "same_in_every_attempt"
"""The name of an attribute. A class with this attribute has exactly one object in each attempt."""

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


def task_key(description: str) -> str:
    """Returns the MD5 of a description as written. It is the key of a task."""
    return hashlib.md5(description.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a step.

    - `digest` is the same for equal values.
    - `vague`: the digest may be the same for different values too. A part of the arguments has no form in the journal,
      and only its class is in the digest.
    - `blind`: only the classes of all arguments are in the digest.
    - `plain`: all that the function uses from its surrounding code is in the digest.
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
    except (ValueError, RecursionError):  # a number of thousands of digits, or values nested thousands deep
        text = nameless(form)
    return hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


class Forms:
    """Makes the forms of values for a digest.

    `unknown` counts the values whose form is only their class. `vague` is true if that holds for any part of any value.
    """

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
        with contextlib.suppress(Exception):  # runs properties of the project's classes
            return encoded(value)
        with contextlib.suppress(Exception), self._once_within(value):
            return self._form_of_parts(value)
        self.vague = True
        return nameless(value)

    @contextlib.contextmanager
    def _once_within(self, value: Any) -> Iterator[None]:
        """Raises ValueError for a value that contains itself."""
        if id(value) in self._within:
            raise ValueError
        self._within.add(id(value))
        try:
            yield
        finally:
            self._within.discard(id(value))

    def _form_of_parts(self, value: Any) -> Any:
        """Returns the form of a value that `encoded` does not accept, made of the forms of its parts."""
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
        """Returns the form of a function: its name, and the values that it uses from its surrounding code."""
        code = function.__code__
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        around = list(map(self._form_around, [*defaults, *cells]))
        names = [*code.co_names, *map(repr, filter(is_fixed, code.co_consts))] if function.__name__ == UNNAMED else []
        return [function.__module__, function.__qualname__, names, around]

    def _form_around(self, value: Any) -> Any:
        """Returns the form of a default or of a variable of the surrounding code.

        A value that may change during the run counts by its class alone, for example a list of results. A finished step
        is not run again, so the value would differ in the next attempt.
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
    """All steps with the same name, place and identity. They are numbered in the order in which they begin.

    The number of a failed step is free again.

    `alike` is true if the numbers do not identify the steps, because another attempt may begin them in another order.
    That holds for blind arguments, and for vague arguments of more than one step. It also holds for a function that is
    not plain, if more than one thread or asyncio task has begun such a step.
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
    """Returns the current asyncio task, or else the current thread. Each runs its steps one after the other."""
    try:
        return asyncio.current_task() or threading.current_thread()
    except RuntimeError:  # no event loop runs in this thread
        return threading.current_thread()

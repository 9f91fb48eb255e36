"""By what a step is known in every attempt: what it is given, and which of its like it is."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import heapq
import inspect
import json
import threading
from dataclasses import dataclass
from typing import Any

from windlass_crewside.frameworks.values import encoded
from windlass_crewside.veil import nameless


@dataclass(frozen=True, slots=True)
class Identity:
    """`digest` is the same for equal values. With `vague` it may be the same for others too: a part of them has no form
    in the journal, and counts by its class alone.
    """

    digest: str
    vague: bool

    @classmethod
    def of(cls, value: Any) -> Identity:
        forms = Forms()
        try:
            text = json.dumps(value, sort_keys=True, default=forms.of)
        except (TypeError, ValueError, RecursionError):  # keys that are no text, or what holds itself
            forms = Forms()
            text = json.dumps(forms.of_parts(value))
        digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
        return cls(digest.hexdigest(), forms.vague)


class Forms:
    def __init__(self) -> None:
        self.vague = False

    def of(self, value: Any) -> Any:
        try:
            return encoded(value)
        except Exception:  # noqa: BLE001 - properties of the project's classes are asked
            self.vague = True
            return nameless(value)

    def of_parts(self, value: Any) -> Any:
        """Of lists and dictionaries whose items may have none."""
        try:
            if isinstance(value, list | tuple):
                return list(map(self.of_parts, value))
            if isinstance(value, dict):
                return sorted([json.dumps(self.of_parts(name)), self.of_parts(item)] for name, item in value.items())
        except (TypeError, RecursionError):
            self.vague = True
            return nameless(value)
        return self.of(value)


def is_plain(work: Any) -> bool:
    """What it does is in its arguments alone: it has no object, and nothing of the code around it."""
    return inspect.isfunction(work) and not work.__closure__


def bound_to(work: Any) -> list[Any]:
    """The arguments that it brings along."""
    return [work.args, work.keywords, *bound_to(work.func)] if isinstance(work, functools.partial) else []


class Kind:
    """All steps of one name that begin in one place and are given the same: numbers tell them from one another, in the
    order in which they begin. The number of one that failed is free again.

    `alike` are steps that numbers can't tell apart either, as another attempt may begin them in another order: those of
    vague arguments, and those of work that is not plain and was begun by more than one thread or asyncio task.
    """

    def __init__(self, *, alike: bool) -> None:
        self.alike = alike
        self._last = 0
        self._free: list[int] = []
        self._beginner: object = None

    def begin(self, *, vague: bool, plain: bool) -> int:
        number = heapq.heappop(self._free) if self._free else self._last + 1
        self._last = max(self._last, number)
        here = thread_of_control()
        self._beginner = self._beginner or here
        self.alike = self.alike or (vague and number > 1) or (not plain and here is not self._beginner)
        return number

    def fail(self, number: int) -> None:
        heapq.heappush(self._free, number)


def thread_of_control() -> object:
    """What does one thing after the other."""
    try:
        return asyncio.current_task() or threading.current_thread()
    except RuntimeError:  # no loop runs here
        return threading.current_thread()

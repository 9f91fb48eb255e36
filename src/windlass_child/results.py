"""Converts values of projects to text and JSON: results, outputs of steps and methods, and defaults of inputs.

`Conversion` is the one function for values of every kind, at every depth. docs/how-to/functions.md has the table of
types.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import inspect
import ipaddress
import json
import math
import pathlib
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from windlass_child import frameworks
from windlass_child.masking.redaction import nameless
from windlass_child.process.error_text import ProjectFault, text_of
from windlass_child.protocol.messages import Succeeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass_child.process.report import Report

RESULTS = "Return text, JSON values, a model or a dataclass."
UNFIT: tuple[tuple[Callable[[Any], bool], str, str], ...] = (
    (inspect.isgenerator, "a generator", "Return a list, for example."),
    (inspect.isasyncgen, "a generator", "Return a list, for example."),
    (inspect.isawaitable, "a coroutine, which nothing awaited", "Await it, or call the function in asyncio.run()."),
    (lambda value: isinstance(value, type), "a class", "Return an object of the class, or its values."),
    (inspect.isroutine, "a function", "Call it, and return its result."),
    (lambda value: isinstance(value, functools.partial), "a function", "Call it, and return its result."),
    (inspect.ismodule, "a module", RESULTS),
    (lambda value: isinstance(value, BaseException), "an exception", "Raise it, or return its text."),
    (lambda value: isinstance(value, Future), "a future", "Return its result()."),
)
"""Values that are no results: how to recognise one, its name, and what to do."""

A_LOCK, A_FILE, A_PROCESS = ("a lock", RESULTS), ("a file", "Return its content."), ("a process", "Return its output.")
HANDLES: dict[str, tuple[str, str]] = {
    "threading:Thread": ("a thread", "Wait for it, and return what it made."),
    "_thread:lock": A_LOCK,
    "_thread:RLock": A_LOCK,
    **{f"threading:{name}": A_LOCK for name in ("_RLock", "Condition", "Semaphore", "Event", "Barrier")},
    **{f"asyncio.locks:{name}": A_LOCK for name in ("Lock", "Condition", "Semaphore", "Event")},
    **{f"multiprocessing.synchronize:{name}": A_LOCK for name in ("SemLock", "Condition", "Event")},
    "_io:_IOBase": A_FILE,
    "tempfile:_TemporaryFileWrapper": A_FILE,
    "tempfile:SpooledTemporaryFile": A_FILE,
    "_socket:socket": ("a socket", "Return what was received."),
    "subprocess:Popen": A_PROCESS,
    "multiprocessing.process:BaseProcess": A_PROCESS,
    "asyncio.subprocess:Process": A_PROCESS,
    "concurrent.futures._base:Executor": ("a pool of workers", "Return the results of its work."),
    "multiprocessing.pool:Pool": ("a pool of workers", "Return the results of its work."),
}
"""Classes of the standard library whose objects end with the run, by module and name: their names, and what to do."""

LISTS = (list, tuple, AbstractSet, deque, range, ValuesView)
TEXTS = (
    *(decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePath, ipaddress.IPv4Address, ipaddress.IPv6Address),
    *(ipaddress.IPv4Network, ipaddress.IPv6Network),
)
"""Types whose `str` is their whole content."""
MOST_PLACES = 3
"""The most places that a warning lists."""


class NoResult(ProjectFault):
    """A value that is no result, or that has one in it."""


class Conversion:
    """Converts one value to JSON values. `losses` describes what JSON can't hold of it: "what", at "where"."""

    def __init__(self) -> None:
        self.losses: list[tuple[str, str]] = []
        self._open: set[int] = set()

    def plain(self, value: Any, place: str = "") -> Any:
        """Returns `value` as JSON values. Raises NoResult for a value that is no result, at any depth, and for one that
        contains itself. Raises RecursionError for one with too many levels.
        """
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, enum.Enum):
            return self.plain(value.value, place)
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return self._number(float(value), place)
        if id(value) in self._open:
            raise NoResult(f"the result contains itself{at(place)}", "Return values without references in a circle.")
        self._open.add(id(value))
        try:
            return self._object(value, place)
        finally:
            self._open.discard(id(value))

    def _number(self, value: float, place: str) -> float | None:
        if math.isfinite(value):
            return value
        self.losses.append((f"the number {value}, which JSON does not have: null was taken", place))
        return None

    def _object(self, value: Any, place: str) -> Any:  # noqa: PLR0911 - one line for each type
        if isinstance(value, Mapping):
            return self._members(value, place)
        if isinstance(value, (set, frozenset)):
            return sorted((self.plain(item, f"{place}[...]") for item in value), key=order)
        if isinstance(value, LISTS):
            return [self.plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
        if isinstance(value, (dt.date, dt.time)):
            return value.isoformat()
        if isinstance(value, dt.timedelta):
            return f"PT{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "S"
        if isinstance(value, TEXTS):
            return str(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._bytes(bytes(value), place)
        refuse(value, place)
        return self._made(value, place)

    def _made(self, value: Any, place: str) -> Any:
        """Converts an object of a class of the project or of a library."""
        if is_output(value):
            structured = structured_part(value)
            return value.raw if structured is None else self.plain(structured, place)
        if callable(getattr(value, "model_dump", None)):
            return self.plain(dumped(value), place)
        if dataclasses.is_dataclass(value):
            names = [one.name for one in dataclasses.fields(value) if hasattr(value, one.name)]
            return {name: self.plain(getattr(value, name), dotted(place, name)) for name in names}
        found = of_a_library(value)
        if found is not value:
            return self.plain(found, place)
        self.losses.append((f"a {type(value).__name__}, which is not JSON: its text was taken", place))
        return made_text(value)

    def _members(self, value: Mapping[Any, Any], place: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in value.items():
            name = self._name(key, place)
            if name in found:
                self.losses.append((f"two members with the name {name!r}: the last one was taken", place))
            found[name] = self.plain(item, dotted(place, name))
        return found

    def _name(self, key: Any, place: str) -> str:
        name = self.plain(key, place)
        return name if isinstance(name, str) else json.dumps(name, ensure_ascii=False)

    def _bytes(self, value: bytes, place: str) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            self.losses.append(("bytes that are not text in UTF-8: their base64 was taken", place))
            return base64.b64encode(value).decode()


def refuse(value: Any, place: str = "") -> None:
    """Raises NoResult for a value that is no result."""
    for is_one, called, hint in UNFIT:
        if is_one(value):
            if inspect.iscoroutine(value):
                value.close()  # Python warns of a coroutine that is not awaited
            text = f", {type(value).__name__}: {text_of(value)}" if isinstance(value, BaseException) else ""
            raise no_result(f"{called}{text}", hint, place)
    for base in type(value).__mro__:
        if handle := HANDLES.get(f"{base.__module__}:{base.__qualname__}"):
            raise no_result(*handle, place)
    if isinstance(value, Iterator):
        raise no_result("an iterator", "Return a list, for example.", place)
    for adapter in frameworks.adapters():
        if name := adapter.runnable(value):
            raise no_result(f"a {name} object", adapter.how_to_run(name), place)


def no_result(called: str, hint: str, place: str) -> NoResult:
    return NoResult(f"the crew's code returned {called}{at(place)}, which is no result", hint)


def at(place: str) -> str:
    return f" at {place.removeprefix('.')}" if place else ""


def dotted(place: str, name: str) -> str:
    return f"{place}.{name}"


def order(value: Any) -> tuple[bool, float, str]:
    """Returns the key by which the members of a set are sorted: a set has another order in each process."""
    is_number = isinstance(value, (int, float))
    return not is_number, value if is_number else 0, json.dumps(value)


def is_output(value: Any) -> bool:
    """Returns whether this is the output of a crew, a task or an agent: its text is `raw`."""
    return isinstance(getattr(value, "raw", None), str) and hasattr(value, "pydantic")


def structured_part(output: Any) -> Any:
    """Returns the dictionary or the model of an output, or None."""
    found = getattr(output, "json_dict", None)
    return output.pydantic if found is None else found


def dumped(model: Any) -> Any:
    """Returns the fields of a model. A model with a field that pydantic can't write as JSON gives Python values."""
    try:
        return model.model_dump(mode="json")
    except (TypeError, ValueError, RecursionError):
        return model.model_dump()


def of_a_library(value: Any) -> Any:
    """Returns the rows or items of a table, an array or a number of numpy, pandas, polars and libraries like them.

    Returns other objects unchanged.
    """
    if hasattr(value, "columns") and callable(getattr(value, "to_dict", None)):
        with contextlib.suppress(TypeError):
            return value.to_dict(orient="records")
    if hasattr(value, "columns") and callable(getattr(value, "to_dicts", None)):
        return value.to_dicts()
    if hasattr(value, "dtype"):
        for name in ("tolist", "to_list", "item"):
            if callable(convert := getattr(value, name, None)):
                return convert()
    return value


def of_any(value: Any, report: Report) -> Succeeded:
    """Returns the result of a run that returned `value`: text unchanged, and all else as JSON with its text.

    Warns of what JSON can't hold. Raises ProjectFault for a value that is no result.
    """
    if value is None:
        return Succeeded("")
    if is_output(value):
        found = structured_part(value)
        return Succeeded(value.raw, None if found is None else json_of(found, report)[1])
    text, structured = json_of(value, report)
    return Succeeded(text, structured)


def json_of(value: Any, report: Report) -> tuple[str, str | None]:
    """Returns the text and the JSON of a value. A text, and a value that becomes one, has no JSON."""
    conversion = Conversion()
    try:
        found = conversion.plain(value)
        text, structured = json.dumps(found, ensure_ascii=False), as_json(found)
    except RecursionError:
        raise NoResult("the result has too many levels", "Return values with fewer levels.") from None
    except ValueError as error:  # an integer with more digits than Python writes
        raise ProjectFault(
            f"the result is a {type(value).__name__}, which is not JSON, and has no text: ValueError: {text_of(error)}",
            RESULTS,
        ) from error
    if conversion.losses:
        report.warn("result_not_json", in_words(conversion.losses))
    return (found, None) if isinstance(found, str) else (text, structured)


def in_words(losses: list[tuple[str, str]]) -> str:
    shown = "; ".join(f"{what}{at(place)}" for what, place in losses[:MOST_PLACES])
    more = f" (and {len(losses) - MOST_PLACES} more)" if len(losses) > MOST_PLACES else ""
    return f"the result has {shown}{more}"


def text_of_output(output: Any) -> str:
    """Returns the text of a step's output, as `of_any` would make it. A step may return any value."""
    try:
        if output is None or is_output(output):
            return "" if output is None else str(output.raw)
        found = Conversion().plain(output)
        return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    except Exception:  # noqa: BLE001 - runs code of the project; the run does not depend on its result
        return nameless(output)


def default(value: Any) -> dict[str, Any]:
    """Returns `{"default": value}` for an input, or {} for a value without a JSON form of its own."""
    conversion = Conversion()
    try:
        found = json.loads(as_json(conversion.plain(value)))
    except Exception:  # noqa: BLE001 - runs code of the project; an input without a default is still described
        return {}
    return {} if conversion.losses else {"default": found}


def as_json(value: Any) -> str:
    """Returns JSON as it is stored and sent. Raises TypeError, ValueError or RecursionError for other values."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def made_text(value: Any) -> str:
    """Returns the text of an object, or its type if its class makes no text: Python's text has an address."""
    kind: Any = type(value)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        return nameless(value)
    try:
        return str(value)
    except Exception as error:
        reason = f"{type(error).__name__}: {text_of(error)}"
        raise ProjectFault(
            f"the result is a {type(value).__name__}, which is not JSON, and has no text: {reason}", RESULTS
        ) from error


def exhausted(output: Any) -> Any:
    """Reads a stream to its end, because a crew or a flow with `stream=True` runs while its output is read."""
    if not is_stream(output):
        return output
    for _ in output:
        pass
    return output.result


async def exhausted_meanwhile(output: Any) -> Any:
    """Reads a stream that runs in the event loop. It must be read in the same loop."""
    if not is_stream(output) or output._async_iterator is None:  # noqa: SLF001 - each stream has both iterators, and one of them works
        return output
    async for _ in output:
        pass
    return output.result


def is_stream(output: Any) -> bool:
    return any(base.__module__ == "crewai.types.streaming" for base in type(output).__mro__)

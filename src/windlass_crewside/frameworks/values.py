"""Python values as JSON, and back as what they were: what a step of a run gives is of the project's own types."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import uuid
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

TAG = "$"
"""The key of a JSON object that stands for something else: its kind. "of" is its class, "v" what it holds."""

MICROSECOND = dt.timedelta(microseconds=1)
TEXTS: dict[type[Any], tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    bytes: (lambda value: base64.b64encode(value).decode(), base64.b64decode),
    dt.datetime: (dt.datetime.isoformat, dt.datetime.fromisoformat),
    dt.date: (dt.date.isoformat, dt.date.fromisoformat),
    dt.time: (dt.time.isoformat, dt.time.fromisoformat),
    dt.timedelta: (lambda value: str(value // MICROSECOND), lambda text: int(text) * MICROSECOND),
    decimal.Decimal: (str, decimal.Decimal),
    pathlib.PosixPath: (str, pathlib.PosixPath),
    uuid.UUID: (str, uuid.UUID),
}
TEXT_KINDS = {kind.__name__: read for kind, (_, read) in TEXTS.items()}
SEQUENCES: dict[type[Any], str] = {tuple: "tuple", set: "set", frozenset: "frozenset"}
SEQUENCE_KINDS: dict[str, type[Any]] = {name: kind for kind, name in SEQUENCES.items()}


def encoded(value: Any) -> Any:
    """Raises TypeError or ValueError, in words, for what has no form here; RecursionError for what holds itself."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [encoded(item) for item in value]
    if kind is dict:
        return encoded_dict(value)
    if kind in SEQUENCES:
        return {TAG: SEQUENCES[kind], "v": [encoded(item) for item in value]}
    if kind in TEXTS:
        return {TAG: kind.__name__, "v": TEXTS[kind][0](value)}
    return encoded_object(value)


def encoded_dict(value: dict[Any, Any]) -> dict[str, Any]:
    if all(type(name) is str and name != TAG for name in value):
        return {name: encoded(item) for name, item in value.items()}
    return {TAG: "dict", "v": [[encoded(name), encoded(item)] for name, item in value.items()]}


def encoded_object(value: Any) -> dict[str, Any]:
    if isinstance(value, enum.Enum):
        return {TAG: "enum", "of": path_of(type(value)), "v": encoded(value.value)}
    if is_model(type(value)):
        fields = {**vars(value), **(value.__pydantic_extra__ or {})}
        return {TAG: "model", "of": path_of(type(value)), "v": encoded_dict(fields)}
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {TAG: "dataclass", "of": path_of(type(value)), "v": encoded_dict(fields)}
    raise TypeError(f"a {type(value).__name__} has no form in the journal")


def decoded(value: Any) -> Any:
    """Raises ValueError or LookupError for what `encoded` did not make, or whose class is gone or another."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {name: decoded(item) for name, item in value.items()}
    return decoded_kind(value[TAG], value)


def decoded_kind(kind: str, value: dict[str, Any]) -> Any:
    if kind in SEQUENCE_KINDS:
        return SEQUENCE_KINDS[kind](decoded(item) for item in value["v"])
    if kind in TEXT_KINDS:
        return TEXT_KINDS[kind](value["v"])
    if kind == "dict":
        return {decoded(name): decoded(item) for name, item in value["v"]}
    found, held = class_at(value["of"]), decoded(value["v"])
    if kind == "enum" and issubclass(found, enum.Enum):
        return found(held)
    if kind == "model" and is_model(found):
        return found.model_construct(**held)
    if kind == "dataclass" and hasattr(found, "__dataclass_fields__"):
        return made(found, held)
    raise ValueError(f"{value['of']} is no {kind}")


def made(kind: type[Any], fields: dict[str, Any]) -> Any:
    """Not by its __init__, which need not take what it has made of its arguments."""
    value = object.__new__(kind)
    for name, item in fields.items():
        object.__setattr__(value, name, item)
    return value


def is_model(kind: type[Any]) -> bool:
    return hasattr(kind, "__pydantic_fields__") and hasattr(kind, "model_construct")


def path_of(kind: type[Any]) -> str:
    path = f"{kind.__module__}:{kind.__qualname__}"
    if class_at(path) is not kind:
        raise ValueError(f"{path} is another class")
    return path


def class_at(path: str) -> Any:
    module, _, names = path.partition(":")
    try:
        found: Any = import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"there is no class {path}") from error
    if not isinstance(found, type):
        raise ValueError(f"{path} is no class")  # noqa: TRY004 - said of what was read
    return found

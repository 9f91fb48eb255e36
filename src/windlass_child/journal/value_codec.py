"""Encodes Python values as JSON and decodes them to the same types, because steps return objects of the project.

Objects are decoded as pickle does it: no constructor and no validator of the project is called.
"""

# See docs/decisions/journal.md#values-are-rebuilt-from-json

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import ipaddress
import json
import pathlib
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TAG = "$"
"""The key of the kind, in a JSON object that stands for another value. "of" is its class, and "v" its content."""

MODEL_PARTS = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
"""The complete state of a pydantic model. Its own __setstate__ sets these four attributes."""
MICROSECOND = dt.timedelta(microseconds=1)
FIELDS = "__dataclass_fields__"
FIELDS_OF_MODELS = "__pydantic_fields__"


def encoded(value: Any) -> Any:
    """Returns the JSON form of a value. Equal values have equal forms.

    Raises TypeError or ValueError, with a message for users, for a value without a form. Raises RecursionError for a
    value that contains itself, and every exception of properties of the project's classes.
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [encoded(item) for item in value]
    if kind is dict:
        return encoded_dict(value)
    if kind in FORMS:
        return {TAG: kind.__name__, "v": FORMS[kind][0](value)}
    return encoded_object(value)


def encoded_dict(value: dict[Any, Any]) -> dict[str, Any]:
    if all(type(name) is str and name != TAG for name in value):
        return {name: encoded(item) for name, item in value.items()}
    return {TAG: "dict", "v": pairs(value)}


def pairs(value: dict[Any, Any]) -> list[Any]:
    return [[encoded(name), encoded(item)] for name, item in value.items()]


def in_order(items: Iterable[Any]) -> list[Any]:
    """Encodes the items of a set in an order that is the same in every process. The order of a set itself is not."""
    return sorted(map(encoded, items), key=json.dumps)


def encoded_object(value: Any) -> dict[str, Any]:
    kind = type(value)
    if isinstance(value, type):
        return {TAG: "class", "of": path_of(value)}
    if isinstance(value, enum.Enum):
        return {TAG: "enum", "of": path_of(kind), "v": encoded(value.value)}
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return {TAG: "namedtuple", "of": path_of(kind), "v": [encoded(item) for item in value]}
    if is_model(kind):
        parts, unset = parts_of(value), without(value, FIELDS_OF_MODELS)
        return {TAG: "model", "of": path_of(kind), "v": encoded_dict(parts)} | unset
    if dataclasses.is_dataclass(value):
        return {TAG: "dataclass", "of": path_of(kind), "v": encoded_dict(held_by(value))} | without(value, FIELDS)
    if is_text_of_pydantic(kind):
        text = value.get_secret_value() if hasattr(kind, "get_secret_value") else str(value)
        return {TAG: "pydantic", "of": path_of(kind), "v": encoded(text)}
    raise TypeError(f"a {kind.__name__} has no form in the journal")


def parts_of(model: Any) -> dict[str, Any]:
    """Returns the state of a model without its unset private attributes, which pydantic marks with a special value."""
    parts = {name: object.__getattribute__(model, name) for name in MODEL_PARTS}
    if private := parts["__pydantic_private__"]:
        parts["__pydantic_private__"] = {
            name: item for name, item in private.items() if type(item).__name__ != "PydanticUndefinedType"
        }
    return {name: part for name, part in parts.items() if part is not None}


def held_by(value: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass object, of which some may be slots, and its other attributes."""
    fields = {name: getattr(value, name) for name in getattr(type(value), FIELDS) if hasattr(value, name)}
    return fields | getattr(value, "__dict__", {})


def without(value: Any, declared: str) -> dict[str, Any]:
    """Returns the declared fields that the object does not have, as {"without": names}, or {} if it has all.

    This distinguishes such an object from one whose class has got new fields since.
    """
    unset = [name for name in getattr(type(value), declared) if not hasattr(value, name)]
    return {"without": unset} if unset else {}


def decoded(value: Any) -> Any:
    """Returns the value of a JSON form.

    Raises ValueError, LookupError or TypeError for a form that `encoded` did not make, and for a class that is gone or
    has changed. Raises every exception of the project's code, such as that of hashing and comparing its objects.
    """
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {name: decoded(item) for name, item in value.items()}
    return decoded_object(value[TAG], value) if "of" in value else READ[value[TAG]](value["v"])


def read_pairs(held: list[Any]) -> dict[Any, Any]:
    return {decoded(name): decoded(item) for name, item in held}


def decoded_object(kind: str, value: dict[str, Any]) -> Any:
    found, held = class_at(value["of"]), decoded(value.get("v"))
    if kind == "class":
        return found
    if (kind == "enum" and issubclass(found, enum.Enum)) or (kind == "pydantic" and is_text_of_pydantic(found)):
        return found(held)
    if kind == "namedtuple" and hasattr(found, "_fields") and len(held) == len(found._fields):
        return tuple.__new__(found, held)
    if kind == "model" and is_model(found) and fits(found, FIELDS_OF_MODELS, held["__dict__"], value):
        return made_model(found, held)
    if kind == "dataclass" and hasattr(found, FIELDS) and fits(found, FIELDS, held, value):
        return made(found, held)
    raise ValueError(f"{value['of']} is not what it was")


def fits(kind: type[Any], declared: str, held: dict[str, Any], value: dict[str, Any]) -> bool:
    return set(getattr(kind, declared)) <= {*held, *value.get("without", ())}


def made(kind: type[Any], attributes: dict[str, Any]) -> Any:
    value = object.__new__(kind)
    for name, item in attributes.items():
        object.__setattr__(value, name, item)
    return value


def made_model(kind: type[Any], parts: dict[str, Any]) -> Any:
    model = made(kind, parts)
    for name in MODEL_PARTS:
        if not hasattr(model, name):
            object.__setattr__(model, name, None)
    return model


def is_model(kind: type[Any]) -> bool:
    return hasattr(kind, "__pydantic_fields__") and hasattr(kind, "model_construct")


def is_text_of_pydantic(kind: type[Any]) -> bool:
    """Returns whether this is a pydantic type whose text is its whole content: a secret or an address."""
    return any(base.__module__.startswith("pydantic") for base in kind.__mro__) and (
        hasattr(kind, "get_secret_value") or hasattr(kind, "unicode_string")
    )


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
        raise ValueError(f"{path} is no class")  # noqa: TRY004 - the error is about a value that was read
    return found


def each(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda held: make(map(decoded, held))


def encoded_moment(value: dt.datetime | dt.time) -> list[Any]:
    """Returns the ISO text, the zone and the fold. An offset can't replace the zone of a place: in such a zone a day is
    not always 24 hours.

    The ISO text alone contains neither the zone nor the fold. The fold selects one of two moments when clocks are set
    back.
    """
    return [value.replace(tzinfo=None).isoformat(), encoded_zone(value.tzinfo), value.fold]


def decoded_moment(kind: type[dt.datetime | dt.time], held: list[Any]) -> dt.datetime | dt.time:
    text, zone, fold = held
    return kind.fromisoformat(text).replace(tzinfo=decoded_zone(zone), fold=fold)


def encoded_zone(zone: dt.tzinfo | None) -> str | int | None:
    """Returns the name of a place, the offset from UTC in microseconds, or None for no zone.

    Raises TypeError for any other zone.
    """
    if zone is None:
        return None
    if isinstance(zone, ZoneInfo):
        return key_of(zone)
    offset = zone.utcoffset(None)
    if offset is None:
        raise TypeError(f"a time in a zone that is a {type(zone).__name__} has no form in the journal; use zoneinfo")
    return offset // MICROSECOND


def key_of(zone: ZoneInfo) -> str:
    if not zone.key:
        raise TypeError("a time zone without a key has no form in the journal")
    return zone.key


def decoded_zone(held: str | int | None) -> dt.tzinfo | None:
    if held is None:
        return None
    return ZoneInfo(held) if isinstance(held, str) else dt.timezone(held * MICROSECOND)


FORMS: dict[type[Any], tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    bytes: (lambda value: base64.b64encode(value).decode(), base64.b64decode),
    dt.date: (dt.date.isoformat, dt.date.fromisoformat),
    dt.datetime: (encoded_moment, partial(decoded_moment, dt.datetime)),
    dt.time: (encoded_moment, partial(decoded_moment, dt.time)),
    dt.timedelta: (lambda value: value // MICROSECOND, lambda held: held * MICROSECOND),
    decimal.Decimal: (str, decimal.Decimal),
    ipaddress.IPv4Address: (str, ipaddress.IPv4Address),
    ipaddress.IPv6Address: (str, ipaddress.IPv6Address),
    pathlib.PosixPath: (str, pathlib.PosixPath),
    uuid.UUID: (str, uuid.UUID),
    tuple: (lambda value: [encoded(item) for item in value], each(tuple)),
    set: (in_order, each(set)),
    frozenset: (in_order, each(frozenset)),
    deque: (lambda value: [value.maxlen, *map(encoded, value)], lambda held: deque(map(decoded, held[1:]), held[0])),
    OrderedDict: (pairs, lambda held: OrderedDict(read_pairs(held))),
    Counter: (pairs, lambda held: Counter(read_pairs(held))),
    defaultdict: (
        lambda value: [encoded(value.default_factory), *pairs(value)],
        lambda held: defaultdict(decoded(held[0]), read_pairs(held[1:])),
    ),
}
"""The functions that write and read values of each type. Subclasses are excluded, because they may hold more data."""

READ = {kind.__name__: read for kind, (_, read) in FORMS.items()} | {"dict": read_pairs}

"""A form from the JSON Schema of a crew's inputs: which field each input has, and values from and to its text."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from windlass.api.bodies import parse
from windlass.api.errors import Problem
from windlass.dashboard.output import indented

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["text", "line", "number", "checkbox", "select", "json"]

MISSING = object()
"""Stands for an input without a value."""
MOST_FIELDS = 100
"""Inputs that have a field each. A crew with more has one field for all of them, as JSON."""
MOST_OPTIONS = 200
MOST_STEPS = 8
"""References and alternatives that are followed from the schema of an input."""
LONGEST_LINE = 100
"""The longest text, in characters, that has a field of one line."""
LONGEST_DEFAULT = 100
FORMATS = {"date": "date", "email": "email", "uri": "url", "time": "time"}
"""Maps a format of JSON Schema to a type of HTML's input."""
WHOLE = re.compile(r"[+-]?[0-9]{1,1000}")
OF_STRUCTURES = {"properties", "items", "anyOf", "oneOf", "allOf", "$ref", "prefixItems", "if", "not"}


@dataclass(frozen=True, slots=True)
class InputField:
    """An input as its field shows it. `type` is its JSON type in words. `options` are JSON texts with their words.

    `default` is MISSING if the schema has none. `limits` names what a value must fulfil.
    """

    name: str
    kind: Kind
    type: str
    required: bool
    description: str
    default: Any
    nullable: bool
    options: tuple[tuple[str, str], ...] = ()
    html_type: str = "text"
    minimum: float | None = None
    maximum: float | None = None
    is_whole: bool = False
    limits: str = ""

    @property
    def key(self) -> str:
        """Returns the name of the field in the form."""
        return f"in.{self.name}."

    @property
    def initial(self) -> str:
        """Returns the text with which the field begins."""
        return self.text_of(self.default) or "" if self.default is not MISSING else ""

    @property
    def default_text(self) -> str | None:
        if self.default is MISSING:
            return None
        text = json.dumps(self.default, ensure_ascii=False)
        return text if len(text) <= LONGEST_DEFAULT else f"{text[:LONGEST_DEFAULT]}..."

    def text_of(self, value: Any) -> str | None:
        """Returns the text of a value, None for a value that the field can't hold."""
        match self.kind:
            case "json":
                return indented(value)
            case "select":
                text = json.dumps(value, ensure_ascii=False)
                return text if text in dict(self.options) else None
            case "checkbox":
                return ("true" if value else "") if isinstance(value, bool) else None
            case "number":
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                return json.dumps(value) if is_number else None
        return value if isinstance(value, str) else None

    def value_of(self, text: str) -> Any:
        """Returns the value of a text, MISSING for an empty field. Raises ValueError, with a message for a person."""
        if self.kind == "checkbox":
            return bool(text)
        if not text.strip():
            return None if self.required and self.nullable else MISSING
        match self.kind:
            case "json":
                return json_value(text)
            case "select":
                return json_value(text) if text in dict(self.options) else text
            case "number":
                return _number(text.strip(), is_whole=self.is_whole)
        return text


@dataclass(frozen=True, slots=True)
class Typed:
    """What a person typed: the text of each field by its name, the inputs that they are, and errors by name."""

    texts: dict[str, str]
    inputs: dict[str, Any]
    errors: dict[str, str]


def described_inputs(schema: Mapping[str, Any]) -> list[InputField]:
    """Returns the inputs that the schema names: the required ones first, in the order in which the crew names them."""
    properties, required = schema.get("properties", {}), list(schema.get("required", ()))
    names = [*required, *(name for name in properties if name not in required)]
    return [_field(name, properties.get(name, True), schema, required=name in required) for name in names]


def texts_of(fields: list[InputField], inputs: Mapping[str, Any]) -> dict[str, str] | None:
    """Returns the text of each field for these inputs, None if the fields can't hold all of them."""
    if not inputs.keys() <= {field.name for field in fields}:
        return None
    texts = {field.name: field.text_of(inputs[field.name]) for field in fields if field.name in inputs}
    known = {name: text for name, text in texts.items() if text is not None}
    return {field.name: known.get(field.name, "") for field in fields} if len(known) == len(texts) else None


def typed(fields: list[InputField], form: Mapping[str, str]) -> Typed:
    """Reads the fields of a form."""
    texts = {field.name: form.get(field.key, "").replace("\r\n", "\n") for field in fields}
    inputs, errors = {}, {}
    for field in fields:
        try:
            value = field.value_of(texts[field.name])
        except ValueError as error:
            errors[field.name] = str(error)
            continue
        if value is not MISSING:
            inputs[field.name] = value
    return Typed(texts, inputs, errors)


def json_value(text: str) -> Any:
    """Returns the value of a JSON text. Raises ValueError, with the place of the error."""
    try:
        return parse(text.encode())
    except Problem as problem:
        raise ValueError(problem.message.replace("The body", "The text").replace(" in the body", "")) from None


def _number(text: str, *, is_whole: bool) -> float:
    if WHOLE.fullmatch(text):
        return int(text)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (is_whole and not value.is_integer()):
        raise ValueError("Type a whole number, such as 3." if is_whole else "Type a number, such as 3 or 0.5.")
    return int(value) if is_whole else value


def _field(name: str, given: Any, root: Mapping[str, Any], *, required: bool) -> InputField:
    schema, nullable = _resolved(given, root)
    types, can_be_null = _types(schema)
    nullable = nullable or can_be_null
    default = schema.get("default", MISSING)
    options = _options(schema)
    kind, only = _kind(schema, types, default, required=required), types[0] if len(types) == 1 else None
    if kind == "select" and not options:
        options = (("true", "true"), ("false", "false"))
    minimum, maximum = _bounds(schema, is_whole=only == "integer")
    word = " or ".join([*types, *(["null"] if nullable else [])]) if types else "any"
    return InputField(
        name,
        kind,
        word,
        required,
        str(schema.get("description", "")),
        default,
        nullable,
        options if kind == "select" else (),
        FORMATS.get(str(schema.get("format")), "text"),
        minimum,
        maximum,
        only == "integer",
        _limits(schema, minimum, maximum),
    )


def _resolved(given: Any, root: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Follows references and single alternatives. Returns the schema, and whether null is an alternative to it."""
    schema, nullable = given if isinstance(given, dict) else {}, False
    for _ in range(MOST_STEPS):
        rest = {name: value for name, value in schema.items() if name not in {"$ref", "anyOf", "oneOf", "allOf"}}
        choices = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if isinstance(schema.get("$ref"), str):
            found = _referred(schema["$ref"], root)
        elif isinstance(choices, list):
            others = [one for one in choices if not (isinstance(one, dict) and one.get("type") == "null")]
            nullable = nullable or len(others) < len(choices)
            found = others[0] if len(others) == 1 else None
        else:
            break
        if not isinstance(found, dict):
            break
        schema = {**found, **rest}
    return schema, nullable


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    target: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
    return target if reference.startswith("#/") else None


def _types(schema: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Returns the JSON types but null, and whether null is one of them."""
    named = schema.get("type")
    found = [str(one) for one in named] if isinstance(named, list) else [named] if isinstance(named, str) else []
    if not found and isinstance(schema.get("enum"), list):
        found = list(dict.fromkeys(_type_of(one) for one in schema["enum"]))
    return [one for one in found if one != "null"], "null" in found


def _type_of(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _options(schema: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Returns the values of an enumeration. There are none if it is too long for a list, or holds structures."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or len(values) > MOST_OPTIONS:
        return ()
    if any(isinstance(one, list | dict) for one in values):
        return ()
    texts = [json.dumps(one, ensure_ascii=False) for one in values]
    return tuple((text, one if isinstance(one, str) else text) for text, one in zip(texts, values, strict=True))


def _kind(schema: Mapping[str, Any], types: list[str], default: Any, *, required: bool) -> Kind:
    if _options(schema):
        return "select"
    if len(types) > 1 or OF_STRUCTURES & schema.keys():
        return "json"
    if not types:
        return "text" if default is MISSING or default is None or isinstance(default, str) else "json"
    is_filled = required or isinstance(default, bool)
    longest = schema.get("maxLength")
    is_short = (isinstance(longest, int) and longest <= LONGEST_LINE) or bool(schema.keys() & {"pattern", "format"})
    kinds: dict[str, Kind] = {
        "boolean": "checkbox" if is_filled else "select",
        "integer": "number",
        "number": "number",
        "string": "line" if is_short else "text",
    }
    return kinds.get(types[0], "json")


def _bounds(schema: Mapping[str, Any], *, is_whole: bool) -> tuple[float | None, float | None]:
    minimum, maximum = _finite(schema.get("minimum")), _finite(schema.get("maximum"))
    above, below = _finite(schema.get("exclusiveMinimum")), _finite(schema.get("exclusiveMaximum"))
    if is_whole and minimum is None and above is not None:
        minimum = math.floor(above) + 1
    if is_whole and maximum is None and below is not None:
        maximum = math.ceil(below) - 1
    return minimum, maximum


def _finite(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if is_number else None


def _limits(schema: Mapping[str, Any], minimum: float | None, maximum: float | None) -> str:
    found = []
    if minimum is not None and maximum is not None:
        found.append(f"{minimum} to {maximum}")
    elif minimum is not None:
        found.append(f"at least {minimum}")
    elif maximum is not None:
        found.append(f"at most {maximum}")
    if isinstance(schema.get("maxLength"), int):
        found.append(f"at most {schema['maxLength']} characters")
    return ", ".join(found)

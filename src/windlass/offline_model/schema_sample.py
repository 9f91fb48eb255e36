"""Makes a value for a JSON Schema, for tool calls and structured answers of the offline model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

_DEEPEST = 12
_DEEP = 4
_LARGEST = 10_000  # items or characters; the value for a schema that requires more does not fit it
_FORMATS = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "PT0S",
    "email": "offline-model@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.com",
}


def sample(schema: Mapping[str, Any], text: str) -> Any:
    """Returns a small value that fits `schema`, with `text` for each string without a format.

    The value has only required members. `pattern`, `not` and conditions are ignored.
    """
    return _Sampler(schema, text).value(schema, 0)


@dataclass(frozen=True, slots=True)
class _Sampler:
    root: Mapping[str, Any]
    text: str

    def value(self, schema: Any, depth: int) -> Any:
        if not _is_schema(schema) or depth > _DEEPEST:
            return self.text
        if "const" in schema:
            return schema["const"]
        if _listed(schema, "enum"):
            return schema["enum"][0]
        further = self._further(schema, depth)
        return self._typed(schema, depth) if further is None else self.value(further, depth + 1)

    def _further(self, schema: Mapping[str, Any], depth: int) -> Any:
        """Returns the schema to use instead of this one, if this one refers to or combines others; else None."""
        if isinstance(schema.get("$ref"), str):
            return self._referred(schema["$ref"])
        for combination in ("anyOf", "oneOf"):
            if options := _listed(schema, combination):
                return _alternative(options, depth)
        if parts := _listed(schema, "allOf"):
            return self._merged([{key: schema[key] for key in schema if key != "allOf"}, *parts])
        return None

    def _referred(self, reference: str) -> Any:
        target: Any = self.root
        for step in reference.removeprefix("#").strip("/").split("/"):
            target = target.get(step, {}) if step and isinstance(target, Mapping) else target
        return target if _is_schema(target) else {}

    def _merged(self, parts: Sequence[Any]) -> dict[str, Any]:
        whole: dict[str, Any] = {}
        for part in filter(_is_schema, parts):
            known = self._referred(part["$ref"]) if isinstance(part.get("$ref"), str) else part
            both = {
                "properties": {**_mapped(whole, "properties"), **_mapped(known, "properties")},
                "required": _listed(whole, "required") + _listed(known, "required"),
            }
            whole = {**whole, **known, **{name: value for name, value in both.items() if value}}
        return whole

    def _typed(self, schema: Mapping[str, Any], depth: int) -> Any:
        match _type(schema):
            case "object":
                members = _mapped(schema, "properties")
                required = [name for name in _listed(schema, "required") if isinstance(name, str)]
                return {name: self.value(members.get(name), depth + 1) for name in required}
            case "array":
                return [self.value(schema.get("items"), depth + 1) for _ in range(_size(schema, "minItems", 0))]
            case "integer" | "number":
                return _number(schema)
            case "boolean" | "null" as named:
                return True if named == "boolean" else None
        return self._string(schema)

    def _string(self, schema: Mapping[str, Any]) -> str:
        if known := _FORMATS.get(str(schema.get("format"))):
            return known
        shortest, longest = _size(schema, "minLength", 0), _size(schema, "maxLength", len(self.text))
        return self.text[: max(longest, shortest)].ljust(shortest, ".")


def _type(schema: Mapping[str, Any]) -> str:
    named = schema.get("type")
    if isinstance(named, list) and named:
        return str(named[0])
    if isinstance(named, str):
        return named
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _alternative(options: Sequence[Any], depth: int) -> Any:
    """Returns the first option; at a great depth `null` or else the last one, to end the recursion of a schema."""
    if depth <= _DEEP:
        return options[0]
    return next((option for option in options if _is_schema(option) and option.get("type") == "null"), options[-1])


def _number(schema: Mapping[str, Any]) -> float:
    low = max(_bound(schema, "minimum", -math.inf), _bound(schema, "exclusiveMinimum", -math.inf))
    high = min(_bound(schema, "maximum", math.inf), _bound(schema, "exclusiveMaximum", math.inf))
    whole = _type(schema) == "integer"
    step = _bound(schema, "multipleOf", 1 if whole else 0)
    multiple = math.ceil(low / step) * step if step and math.isfinite(low) else step
    candidates = (1, 0, step, multiple, multiple + step, low, low + 1, high, high - 1, (low + high) / 2)
    found = next((number for number in candidates if math.isfinite(number) and _fits(number, step, schema)), 1)
    return int(found) if whole else found


def _fits(number: float, step: float, schema: Mapping[str, Any]) -> bool:
    return (
        _bound(schema, "minimum", number) <= number <= _bound(schema, "maximum", number)
        and _bound(schema, "exclusiveMinimum", -math.inf) < number < _bound(schema, "exclusiveMaximum", math.inf)
        and (not step or number % step == 0)
    )


def _bound(schema: Mapping[str, Any], name: str, otherwise: float) -> float:
    value = schema.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def _size(schema: Mapping[str, Any], name: str, otherwise: int) -> int:
    return int(min(max(_bound(schema, name, otherwise), 0), _LARGEST))


def _listed(schema: Mapping[str, Any], name: str) -> list[Any]:
    value = schema.get(name)
    return value if isinstance(value, list) else []


def _mapped(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = schema.get(name)
    return value if isinstance(value, Mapping) else {}


def _is_schema(schema: object) -> TypeGuard[Mapping[str, Any]]:
    """Returns whether the schema has keywords. `true` and `false` are schemas without any."""
    return isinstance(schema, Mapping)

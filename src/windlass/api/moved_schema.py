from __future__ import annotations

from typing import Any

NAMED = {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
"""Keywords whose value maps names to schemas."""
DATA = {"const", "default", "enum", "example", "examples", "required"}
"""Keywords whose value is no schema."""


def moved(schema: Any, place: str) -> Any:
    """The same JSON Schema for a document in which it stands at `place`: references to `#` lead there."""
    if isinstance(schema, list):
        return [moved(one, place) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {keyword: _moved(keyword, value, place) for keyword, value in schema.items()}


def _moved(keyword: str, value: Any, place: str) -> Any:
    if keyword in DATA:
        return value
    if keyword in NAMED and isinstance(value, dict):
        return {name: moved(one, place) for name, one in value.items()}
    if keyword == "$ref":
        return _at(value, place)
    if keyword == "discriminator" and isinstance(value, dict):
        mapping = value.get("mapping", {})
        return {**value, "mapping": {name: _at(one, place) for name, one in mapping.items()}}
    return moved(value, place)


def _at(reference: Any, place: str) -> Any:
    inner = isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))
    return f"{place}{reference[1:]}" if inner else reference

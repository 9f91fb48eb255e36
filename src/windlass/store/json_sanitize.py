"""Replaces NUL characters and lone surrogates, which columns of type text and jsonb and operators on json refuse.

Columns of type json keep both as escapes, as long as PostgreSQL does not interpret the value.
"""

from __future__ import annotations

from typing import Any


def sanitized_text(text: str) -> str:
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def sanitized_json(value: Any) -> Any:
    """Returns the JSON value with all its strings and member names sanitized."""
    if isinstance(value, str):
        return sanitized_text(value)
    if isinstance(value, dict):
        return {sanitized_text(name): sanitized_json(inner) for name, inner in value.items()}
    return [sanitized_json(inner) for inner in value] if isinstance(value, list | tuple) else value

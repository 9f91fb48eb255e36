"""What columns of type text and jsonb, and operators on json, can't take: NUL, and half of a surrogate pair.

Columns of type json keep both, as escapes, as long as PostgreSQL passes them on unread.
"""

from __future__ import annotations

from typing import Any


def storable_text(text: str) -> str:
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def storable(value: Any) -> Any:
    """The same JSON value, with each of its strings, names too, such as can be stored."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, dict):
        return {storable_text(name): storable(inner) for name, inner in value.items()}
    return [storable(inner) for inner in value] if isinstance(value, list | tuple) else value

"""Shortens values and texts that are too long to be sent."""

from __future__ import annotations

import json
from typing import Any

from windlass_child.protocol.fields import LARGEST_EVENT
from windlass_child.protocol.sizes import size_in_words

LONGEST = 64 * 1024
"""The most characters of one string in an event. Other messages send outputs whole, once."""


def shortened(value: Any) -> Any:
    """Returns JSON with its long strings cut. A cut string ends with its full size."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST else f"{value[:LONGEST]}{in_all(value)}"
    if isinstance(value, dict):
        return {shortened(name): shortened(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shortened(item) for item in value]
    return value


def short_or_noted(value: Any) -> Any:
    """Returns JSON unchanged, or the size of its text if that is long."""
    text = json.dumps(value)
    return value if len(text) <= LONGEST else in_all(text)


def beginning(text: str, most: int) -> str:
    """Returns at most `most` characters of the text. An ellipsis ends a text that was cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def in_all(text: str) -> str:
    return f"... ({size_in_words(len(text.encode('utf-8', 'surrogatepass')))} in all)"


def cut(value: Any) -> dict[str, Any]:
    """Returns the payload that replaces one of more than LARGEST_EVENT bytes: the beginning of its JSON, as text."""
    text = json.dumps(value, separators=(",", ":"))
    kept = text[: LARGEST_EVENT // 2 - 512]  # escaping can double the size
    return {"cut": {"bytes": len(text), "kept": len(kept), "limit": LARGEST_EVENT}, "beginning": kept}

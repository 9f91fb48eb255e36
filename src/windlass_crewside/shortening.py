from __future__ import annotations

import json
from typing import Any

from windlass_crewside.budget import size_in_words

LONGEST = 64 * 1024
"""Characters of one string in an event. Outputs are told whole elsewhere, once."""


def shortened(value: Any) -> Any:
    """JSON, its long strings cut and marked with their size."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST else f"{value[:LONGEST]}{in_all(value)}"
    if isinstance(value, dict):
        return {shortened(name): shortened(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shortened(item) for item in value]
    return value


def short_or_noted(value: Any) -> Any:
    """JSON of any shape as it is, or, where its text is long, the size of that."""
    text = json.dumps(value)
    return value if len(text) <= LONGEST else in_all(text)


def in_all(text: str) -> str:
    return f"... ({size_in_words(len(text.encode('utf-8', 'surrogatepass')))} in all)"

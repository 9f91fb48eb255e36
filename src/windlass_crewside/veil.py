"""Takes secrets out of what leaves a crew's process, and makes any value plain JSON."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
SHORTEST = 8
"""Characters; a shorter value is likely to be a word that occurs in harmless text."""

MASK = "[secret]"
DEEPEST = 64


class Veil:
    def __init__(self, environment: Mapping[str, str]) -> None:
        secrets = {value for name, value in environment.items() if SECRET_NAME.search(name) and len(value) >= SHORTEST}
        longest_first = sorted(secrets, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if secrets else None

    def text(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def plain(self, value: Any, depth: int = 0) -> Any:
        """`value` as JSON, its strings without secrets. What JSON has no word for becomes the name of its type."""
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool | int | float):
            return str(value) if isinstance(value, float) and not math.isfinite(value) else value
        if depth >= DEEPEST:
            return "…"
        if isinstance(value, dict):
            return {self.text(str(key)): self.plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.plain(item, depth + 1) for item in value]
        return nameless(value)


def nameless(value: object) -> str:
    """Stands for an object whose own text might hold a key."""
    return f"<{type(value).__name__}>"

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class SealedVariable:
    """A variable of a deployment, with its encrypted value."""

    name: str
    value: str
    secret: bool


def sealed_variables(rows: Iterable[dict[str, Any]]) -> tuple[SealedVariable, ...]:
    return tuple(SealedVariable(**row) for row in rows)

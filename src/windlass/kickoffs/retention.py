"""Reads retention times from settings and from a project's pyproject.toml."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

FOREVER = "forever"
MOST = 36_500
"""Days. A larger value is a typing error."""


class BadAge(ValueError):  # noqa: N818 - describes the age
    """Reports an invalid retention time. The message names the valid values."""


def age(value: Any) -> float:
    """Returns days, from a number or from text. Returns 0 for "forever". Raises BadAge."""
    if isinstance(value, str):
        value = 0 if value.strip().lower() == FOREVER else _number(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise BadAge(f'must be a number of days up to {MOST}, or "forever" (the same as 0)')
    return value


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Retention:
    """Holds the days after the end of a kickoff for which the kickoff, its events and its journal are kept.

    0 stands for ever, and None for a time that is not set.
    """

    kickoffs: float | None = None
    events: float | None = None
    journal: float | None = None

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Returns the retention for names and values as people write them. Raises BadAge."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(given.keys() - known):
            raise BadAge(f"there is no retention time {unknown[0]!r}; there are: {', '.join(sorted(known))}")
        return cls(**{name: _named(name, value) for name, value in given.items()})

    def to_json(self) -> dict[str, Any]:
        """Returns the times that are set. `parse` accepts this value."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def over(self, usual: Retention) -> Retention:
        """Returns these times, with those of `usual` where none is set."""
        return Retention(**{**usual.to_json(), **self.to_json()})


def _named(name: str, value: Any) -> float:
    try:
        return age(value)
    except BadAge as error:
        raise BadAge(f"{name} {error}, not {value!r}") from None

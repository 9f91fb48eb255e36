"""How long what kickoffs leave behind is kept: read from settings and from a project's pyproject.toml."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

FOREVER = "forever"
MOST = 36_500
"""Days; what is more is a typing error."""


class BadAge(ValueError):  # noqa: N818 - said of the age
    """The text says what an age takes."""


def age(value: Any) -> float:
    """Days, 0 for ever, from a number or from text, "forever" too. Raises BadAge."""
    if isinstance(value, str):
        value = 0 if value.strip().lower() == FOREVER else _number(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise BadAge(f'must be a number of days up to {MOST}, or "forever" (which 0 is too)')
    return value


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Retention:
    """Days after its end that a kickoff is kept, and before that its events and its journal; 0 is for ever, None not
    said.
    """

    kickoffs: float | None = None
    events: float | None = None
    journal: float | None = None

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Raises BadAge."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(given.keys() - known):
            raise BadAge(f"{unknown[0]} is nothing that is kept; there are: {', '.join(sorted(known))}")
        return cls(**{name: _named(name, value) for name, value in given.items()})

    def to_json(self) -> dict[str, Any]:
        """Those that are said; `parse` reads it back."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def over(self, usual: Retention) -> Retention:
        """With the usual where nothing is said."""
        return Retention(**{**usual.to_json(), **self.to_json()})


def _named(name: str, value: Any) -> float:
    try:
        return age(value)
    except BadAge as error:
        raise BadAge(f"{name} {error}, not {value!r}") from None

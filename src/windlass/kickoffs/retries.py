"""When a kickoff that failed is run again: only where its project says so, in [tool.windlass.retries]."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from windlass.kickoffs.states import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windlass.kickoffs.outcome import Outcome

REASONS = (Reason.ERROR, Reason.CRASHED, Reason.LIMIT)
"""Those that another attempt may get over. A timeout counts from the first start, and a loss is not a failure."""

MOST_ATTEMPTS = 100
LONGEST_BACKOFF = 86_400.0


class BadRetries(ValueError):  # noqa: N818 - said of the table
    """A retries table that can't be meant; the text says which key, and what it takes."""


@dataclass(frozen=True, slots=True)
class Retries:
    """`attempts` is how often a kickoff is tried at most while it fails, 1 for no retry. The first pause before another
    attempt is `backoff` seconds, each further one twice as long, up to `longest_backoff`. `reasons` are the failures
    that are tried again.
    """

    attempts: int = 1
    backoff: float = 10.0
    longest_backoff: float = 600.0
    reasons: tuple[Reason, ...] = (Reason.ERROR, Reason.CRASHED)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """From names and values as people write them. Raises BadRetries."""
        known = {one.name for one in fields(cls)}
        if unknown := sorted(given.keys() - known):
            raise BadRetries(f"there is no {unknown[0]!r}; there are: {', '.join(sorted(known))}")
        return cls(**{name: CHECKS[name](name, value) for name, value in given.items()})

    def to_json(self) -> dict[str, Any]:
        """Those that are not the default; `parse` reads it back."""
        usual = Retries()
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        told = {name: value for name, value in found.items() if value != getattr(usual, name)}
        return {name: list(value) if name == "reasons" else value for name, value in told.items()}

    def pause(self, outcome: Outcome, retries: int) -> float | None:
        """Seconds to wait before another attempt, with some chance in them so that failures that came together do not
        come together again; None when this outcome, after so many retries, is the last.
        """
        if outcome.reason not in self.reasons or outcome.final or retries + 1 >= self.attempts:
            return None
        pause: float = min(self.backoff * 2.0 ** min(retries, 60), self.longest_backoff)
        return pause * random.uniform(0.8, 1.2)  # noqa: S311 - no secret


def _attempts(name: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MOST_ATTEMPTS:
        raise BadRetries(f"{name} must be a whole number from 1 to {MOST_ATTEMPTS}, not {value!r}")
    return value


def _seconds(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= LONGEST_BACKOFF:
        raise BadRetries(f"{name} must be seconds, from 0 to {LONGEST_BACKOFF:.0f}, not {value!r}")
    return float(value)


def _reasons(name: str, value: Any) -> tuple[Reason, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one in REASONS for one in value):
        raise BadRetries(f"{name} must be a list of {', '.join(REASONS)}, not {value!r}")
    return tuple(Reason(one) for one in value)


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "attempts": _attempts,
    "backoff": _seconds,
    "longest_backoff": _seconds,
    "reasons": _reasons,
}

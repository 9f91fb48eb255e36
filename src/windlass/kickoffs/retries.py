"""Decides when a failed kickoff is run again. The project must allow that in [tool.windlass.retries]."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from windlass.kickoffs.states import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windlass.kickoffs.outcome import Outcome

REASONS = (Reason.ERROR, Reason.CRASHED, Reason.LIMIT, Reason.SECRETS)
"""Reasons after which another attempt may succeed. A timeout is missing because it counts from the first start, and a
loss because it is not a failure.
"""

MOST_ATTEMPTS = 100
LONGEST_BACKOFF = 86_400.0


class BadRetries(ValueError):  # noqa: N818 - describes the table
    """Reports an invalid retries table. The message names the key and its valid values."""


@dataclass(frozen=True, slots=True)
class Retries:
    """Holds the retry settings of a project.

    `attempts` is the maximum number of attempts of a kickoff that fails; 1 stands for no retry. The first pause between
    two attempts is `backoff` seconds. Each further pause is twice as long, up to `longest_backoff` seconds. `reasons`
    are the failures after which the kickoff is run again.
    """

    attempts: int = 1
    backoff: float = 10.0
    longest_backoff: float = 600.0
    reasons: tuple[Reason, ...] = (Reason.ERROR, Reason.CRASHED)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Returns the settings for names and values as people write them. Raises BadRetries."""
        known = {one.name for one in fields(cls)}
        if unknown := sorted(given.keys() - known):
            raise BadRetries(f"there is no {unknown[0]!r}; there are: {', '.join(sorted(known))}")
        return cls(**{name: CHECKS[name](name, value) for name, value in given.items()})

    def to_json(self) -> dict[str, Any]:
        """Returns the values that differ from the defaults. `parse` accepts this value."""
        usual = Retries()
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        changed = {name: value for name, value in found.items() if value != getattr(usual, name)}
        return {name: list(value) if name == "reasons" else value for name, value in changed.items()}

    def pause(self, outcome: Outcome, retries: int) -> float | None:
        """Returns the seconds to wait before the next attempt, or None if this outcome is final after `retries`
        retries.

        The pause is partly random, so that kickoffs that failed at the same time are not all run again at the same
        time.
        """
        if outcome.reason not in self.reasons or outcome.final or retries + 1 >= self.attempts:
            return None
        pause: float = min(self.backoff * 2.0 ** min(retries, 60), self.longest_backoff)
        return pause * random.uniform(0.8, 1.2)  # noqa: S311 - not a secret


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

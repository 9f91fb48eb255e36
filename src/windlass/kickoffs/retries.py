"""Decides when a failed kickoff is run again. The project must allow that in [tool.windlass.retries]."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from windlass.kickoffs.declared_settings import SettingTable, pause, setting, several, whole
from windlass.kickoffs.states import Reason

if TYPE_CHECKING:
    from windlass.kickoffs.outcome import Outcome

REASONS = several(
    Reason,
    error="the crew raised an error",
    crashed="the process ended without a result",
    limit="the run reached a limit",
    secrets="a secret could not be read",
)
"""Reasons after which another attempt may succeed. A timeout is missing because it counts from the first start, and a
loss because it is not a failure.
"""
PAUSE = pause(86_400)


@dataclass(frozen=True, slots=True)
class Retries(SettingTable):
    """Holds the retry settings of a project."""

    noun: ClassVar[str] = "retry setting"

    attempts: int = setting(
        1, whole(100), "Attempts", "The most attempts of a kickoff that fails, with the first one. 1: no retry."
    )
    backoff: float = setting(
        10.0, PAUSE, "First pause", "The pause before the second attempt. Each further one doubles."
    )
    longest_backoff: float = setting(600.0, PAUSE, "Longest pause", "The longest pause between two attempts.")
    reasons: tuple[Reason, ...] = setting(
        (Reason.ERROR, Reason.CRASHED),
        REASONS,
        "Failures that are tried again",
        "The failures after which the kickoff runs again. A lost process is not a failure: it runs again in any case.",
    )

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

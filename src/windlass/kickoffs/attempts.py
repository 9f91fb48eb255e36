from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

AttemptEnd = Literal["SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "lost", "released", "retried"]
"""The final state of the kickoff, or the reason why the kickoff went on without this attempt."""
RETRIED: AttemptEnd = "retried"


@dataclass(frozen=True, slots=True)
class Attempt:
    """Describes one run of a kickoff, on the machine `host`. `ended_at`, `ended_as` and `why` are None while it runs.

    `restored` counts the journal entries that existed when the attempt began. `from_journal` are the tasks that the
    attempt took from the journal. `ran` are the tasks that it ran and that no later attempt ran again. Both hold the
    names of the tasks, or the ids of tasks without a name.
    """

    attempt: int
    started_at: datetime
    host: str
    restored: int
    ended_at: datetime | None
    ended_as: AttemptEnd | None
    why: str | None
    from_journal: Sequence[str]
    ran: Sequence[str]

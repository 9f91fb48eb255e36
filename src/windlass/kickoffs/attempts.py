from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

AttemptEnd = Literal["SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "lost", "released", "retried"]
"""The state that the kickoff ended in, or why it went on without this attempt."""
RETRIED: AttemptEnd = "retried"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a kickoff, on the machine `host`; `ended_at`, `ended_as` and `why` are None while it runs.

    `restored` counts the journal's entries that it began with. `from_journal` are the tasks that it did not have to
    run, `ran` those that no later attempt ran again: their names, or ids where they have none.
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

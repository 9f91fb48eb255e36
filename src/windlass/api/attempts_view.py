"""The attempts of a kickoff as the body of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windlass.api.times import utc

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.kickoffs.attempts import Attempt


def attempts_body(kickoff: UUID, attempts: Sequence[Attempt]) -> dict[str, Any]:
    return {"kickoff_id": str(kickoff), "attempts": [_attempt(attempt) for attempt in attempts]}


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "started_at": utc(attempt.started_at),
        "ended_at": utc(attempt.ended_at) if attempt.ended_at else None,
        "ended_as": attempt.ended_as,
        "why": attempt.why,
        "host": attempt.host,
        "restored": attempt.restored,
        "from_journal": list(attempt.from_journal),
        "ran": list(attempt.ran),
    }

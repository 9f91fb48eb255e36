from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg

from windlass.away import away
from windlass.kickoffs.events import to_json
from windlass.kickoffs.outcome import failure, lost_too_often
from windlass.kickoffs.states import Reason, State
from windlass.kickoffs.stopping import STOPPED
from windlass.store.named_queries import queries
from windlass.store.reporting import text, warnings_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.kickoffs.outcome import Outcome
    from windlass.kickoffs.tasks import Warning_
    from windlass.kickoffs.usage import TokenUsage
    from windlass.store.database import Database, Row

SQL = queries("ending")

RELEASED = "its worker stopped"
LEASE_ENDED = "its worker's lease ended: the worker died, stood still, or could not reach the database"

NO_JSON = (psycopg.DataError, psycopg.errors.StatementTooComplex)
"""What PostgreSQL, the first to read structured output, raises when that is no JSON, or nested too deep."""

WORDS_FOR_NO_JSON = (
    "the run gave structured output that is no JSON, or that is nested too deep to be stored. Return plain values."
)


@dataclass(frozen=True, slots=True)
class Interruption:
    """A run has ended and its kickoff has not: why, and what it has used and warned of."""

    why: str
    usage: TokenUsage
    warnings: Sequence[Warning_] = ()

    def columns(self) -> dict[str, str | None]:
        return {"why": text(self.why), **_spent(self.usage, self.warnings)}


async def settle(
    database: Database, kickoff: UUID, attempt: int, outcome: Outcome, usage: TokenUsage, warnings: Sequence[Warning_]
) -> bool:
    if not outcome.state.ended:
        raise ValueError(f"no run ends as {outcome.state}")
    try:
        return await _settle(database, kickoff, attempt, outcome, usage, warnings)
    except NO_JSON:
        if outcome.structured is None:
            raise
    return await _settle(database, kickoff, attempt, failure(Reason.CRASHED, WORDS_FOR_NO_JSON), usage, warnings)


async def _settle(
    database: Database, kickoff: UUID, attempt: int, outcome: Outcome, usage: TokenUsage, warnings: Sequence[Warning_]
) -> bool:
    output = outcome.output
    written = None if output is None else await away(len(output), lambda: to_json(output))
    settled = await database.rows(
        SQL["settle"],
        {
            "kickoff": kickoff,
            "attempt": attempt,
            "state": outcome.state,
            "reason": outcome.reason,
            "error": text(outcome.error),
            "output": written,
            "output_of": outcome.output_of,
            "structured": outcome.structured,
            **_spent(usage, warnings),
        },
    )
    return bool(settled)


async def put_back(
    database: Database, kickoff: UUID, attempt: int, interruption: Interruption, *, max_losses: int, alone: bool
) -> State | None:
    values = {"kickoff": kickoff, "attempt": attempt, "max_losses": max_losses, "alone": alone}
    return _state(await database.row(SQL["put_back"], {**values, **interruption.columns()}))


async def retry(database: Database, kickoff: UUID, attempt: int, interruption: Interruption, *, pause: float) -> bool:
    values = {"kickoff": kickoff, "attempt": attempt, "pause": timedelta(seconds=pause)}
    return bool(await database.rows(SQL["retry"], {**values, **interruption.columns()}))


def _spent(usage: TokenUsage, warnings: Sequence[Warning_]) -> dict[str, str]:
    return {"token_usage": to_json(usage.to_json()), "warnings": warnings_json(warnings)}


async def release(database: Database, worker: UUID, running: Sequence[UUID]) -> list[tuple[UUID, int, State]]:
    rows = await database.rows(SQL["release"], {"worker": worker, "running": list(running), "why": RELEASED})
    return [(row["id"], row["attempt"], State(row["state"])) for row in rows]


async def reap(database: Database, *, max_losses: int, limit: int) -> list[tuple[UUID, State]]:
    error = lost_too_often(max_losses)
    values = {"max_losses": max_losses, "limit": limit, "error": error, "why": LEASE_ENDED}
    rows = await database.rows(SQL["reap"], values)
    return [(row["id"], State(row["state"])) for row in rows]


async def end_all_leases(database: Database) -> int:
    return await database.execute(SQL["end_all_leases"])


async def stop(database: Database, kickoff: UUID) -> State | None:
    asked = await database.row(SQL["stop"], {"kickoff": kickoff, "error": STOPPED}, soon=True)
    return _state(asked or await database.row(SQL["state"], {"kickoff": kickoff}, soon=True))


def _state(row: Row | None) -> State | None:
    return State(row["state"]) if row else None

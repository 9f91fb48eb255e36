from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg

from windlass.aio import offload
from windlass.kickoffs.events import to_json
from windlass.kickoffs.outcome import MOST_UNSTARTED, STOPPED, failure, lost_too_often, never_started
from windlass.kickoffs.states import Reason, State
from windlass.store import files
from windlass.store.database import fetch, queries
from windlass.store.reporting import Batch, Parts, columns_of, settling, text, warnings_json
from windlass.store.values import SQL as STAGING
from windlass.store.values import encoded, is_large, json_of, refused, stage, unstorable
from windlass_child.process.validation import Encoded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from windlass.kickoffs.files import FileChanges
    from windlass.kickoffs.outcome import Outcome, TokenUsage
    from windlass.kickoffs.tasks import Warning_
    from windlass.store.audit import Actor
    from windlass.store.database import Database, Row
    from windlass_child.process.fields import Text

SQL = queries("ending")

OPEN = (State.PENDING, State.STARTED, State.PENDING_HUMAN_INPUT)
MATCHING_AT_ONCE = 5000
"""The most ids that one search for kickoffs to stop returns; the next search returns more."""

RELEASED = "its worker stopped"
LEASE_ENDED = (
    "its worker's lease ended: the worker on the machine %s last reported %s s ago. It died, stood still, or could not "
    "reach the database"
)
NEVER_STARTED = (
    "its worker's lease ended before the process of the kickoff had started: the worker on the machine %s last "
    "reported %s s ago"
)

NO_JSON_ERROR = (
    "the run gave structured output that is no JSON, or that is nested too deep to be stored. Return plain values."
)


@dataclass(frozen=True, slots=True)
class Interruption:
    """The end of a run whose kickoff goes on: the reason, the token usage and the warnings."""

    why: str
    usage: TokenUsage
    warnings: Sequence[Warning_] = ()

    def columns(self) -> dict[str, str | None]:
        return {"why": text(self.why), **_spent(self.usage, self.warnings)}


@dataclass(frozen=True, slots=True)
class StopFilter:
    """Selects kickoffs of the deployment in one of `states`.

    Each further member narrows the selection when it is set. `owner` is the id of a user, `user` the name of a user.
    `before` is the latest time of creation.
    """

    deployment: UUID
    states: Sequence[State] = OPEN
    owner: UUID | None = None
    user: str | None = None
    before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Matching:
    """Kickoffs that match a filter.

    `read_at` is PostgreSQL's time of the search. Kickoffs that are accepted later do not match.
    """

    waiting: list[UUID]
    running: list[UUID]
    read_at: datetime


async def settle(
    database: Database,
    kickoff: UUID,
    attempt: int,
    outcome: Outcome,
    usage: TokenUsage,
    warnings: Sequence[Warning_],
    *,
    changes: FileChanges | None = None,
    last: Batch | None = None,
) -> State | None:
    if not outcome.state.ended:
        raise ValueError(f"no run ends as {outcome.state}")
    batch = replace(last or Batch(), warnings=warnings, usage=usage)
    try:
        return await _settle(database, kickoff, attempt, outcome, batch, changes)
    except psycopg.Error as error:
        if not refused(error):
            raise
        if outcome.structured is None or last is not None:
            raise unstorable(error) from error
    crashed = failure(Reason.CRASHED, NO_JSON_ERROR)
    return await _settle(database, kickoff, attempt, crashed, batch, changes)


async def _settle(
    database: Database,
    kickoff: UUID,
    attempt: int,
    outcome: Outcome,
    batch: Batch,
    changes: FileChanges | None,
) -> State | None:
    output, structured = outcome.output, outcome.structured
    statement = settling(Parts.of(batch), output_of=outcome.output_of is not None)
    values = {
        **columns_of(batch),
        "kickoff": kickoff,
        "attempt": attempt,
        "state": outcome.state,
        "reason": outcome.reason,
        "error": text(outcome.error),
        "output": None if is_large(output) else json_of(output),
        "output_of": outcome.output_of,
        "structured": None if is_large(structured) else raw(structured),
    }
    large: dict[int, bytes | bytearray] = {}
    if output is not None and is_large(output):
        large[0] = await offload(len(output), lambda: encoded(output))
    if structured is not None and is_large(structured):
        large[1] = structured.data if isinstance(structured, Encoded) else structured.encode()
    if not large and changes is None:
        return _state(await database.row(statement, values))
    async with database.transaction(size=sum(map(len, large.values()))) as connection:
        if large:
            await stage(connection, large)
        rows = await fetch(connection, statement, values)
        if rows and large:
            await connection.execute(STAGING["move_result"], values)
        if rows and changes is not None:
            await files.apply(connection, kickoff, changes)
    return _state(rows[0] if rows else None)


def raw(value: Text | None) -> str | None:
    return str(value.data, "ascii") if isinstance(value, Encoded) else value


async def requeue(
    database: Database,
    kickoff: UUID,
    attempt: int,
    interruption: Interruption,
    *,
    max_losses: int,
    isolated: bool,
    process_started: bool,
) -> State | None:
    values = {
        "kickoff": kickoff,
        "attempt": attempt,
        "isolated": isolated,
        "process_started": process_started,
        **_bounds(max_losses),
    }
    return _state(await database.row(SQL["requeue"], {**values, **interruption.columns()}))


def _bounds(max_losses: int) -> dict[str, int]:
    """Returns the bounds of attempts. Without any further attempt after a loss, also one whose process is not known to
    have started counts: its worker may have died before it reported the start.
    """
    return {"max_losses": max_losses, "most_unstarted": MOST_UNSTARTED if max_losses else 1}


async def retry(database: Database, kickoff: UUID, attempt: int, interruption: Interruption, *, pause: float) -> bool:
    values = {"kickoff": kickoff, "attempt": attempt, "pause": timedelta(seconds=pause)}
    return bool(await database.rows(SQL["retry"], {**values, **interruption.columns()}))


def _spent(usage: TokenUsage, warnings: Sequence[Warning_]) -> dict[str, str]:
    return {"token_usage": to_json(usage.to_json()), "warnings": warnings_json(warnings)}


async def release(database: Database, worker: UUID, running: Sequence[UUID]) -> list[tuple[UUID, int, State]]:
    rows = await database.rows(SQL["release"], {"worker": worker, "running": list(running), "why": RELEASED})
    return [(row["id"], row["attempt"], State(row["state"])) for row in rows]


async def reap(
    database: Database, except_for: Sequence[UUID], *, max_losses: int, limit: int
) -> list[tuple[UUID, State]]:
    values = {
        **_bounds(max_losses),
        "limit": limit,
        "error": lost_too_often(max_losses),
        "error_unstarted": never_started(max_losses),
        "why": LEASE_ENDED,
        "why_unstarted": NEVER_STARTED,
        "except_for": list(except_for),
    }
    rows = await database.rows(SQL["reap"], values)
    return [(row["id"], State(row["state"])) for row in rows]


async def end_all_leases(database: Database) -> int:
    return await database.execute(SQL["end_all_leases"])


async def stop(database: Database, kickoff: UUID, by: Actor) -> State | None:
    asked = await database.row(SQL["stop"], {"kickoff": kickoff, **_asked_by(by)}, soon=True)
    return _state(asked or await database.row(SQL["state"], {"kickoff": kickoff}, soon=True))


async def matching(database: Database, wanted: StopFilter) -> Matching | None:
    values = {
        "deployment": wanted.deployment,
        "states": [str(state) for state in wanted.states],
        "owner": wanted.owner,
        "user": wanted.user,
        "before": wanted.before,
        "limit": MATCHING_AT_ONCE,
    }
    rows = await database.rows(SQL["matching"], values)
    if not rows:
        return None
    running = [row["id"] for row in rows if row["state"] == State.STARTED]
    waiting = [row["id"] for row in rows if row["state"] != State.STARTED]
    return Matching(waiting, running, rows[0]["read_at"])


async def stop_waiting(database: Database, kickoffs: Sequence[UUID], by: Actor) -> int:
    return len(await database.rows(SQL["stop_waiting"], {"kickoffs": list(kickoffs), **_asked_by(by)}))


def _asked_by(by: Actor) -> Row:
    return {**by.columns(), "by": by.words, "recorded": by.kind != "server", "error": STOPPED}


def _state(row: Row | None) -> State | None:
    return State(row["state"]) if row else None

# See docs/decisions/queue.md#a-stop-of-many-kickoffs-works-in-parts

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
from windlass.store.audit import COMMAND_LINE
from windlass.store.database import Store, fetch, queries
from windlass.store.reporting import Batch, Parts, columns_of, settling, text, warnings_json
from windlass.store.values import SQL as STAGING
from windlass.store.values import encoded, is_large, json_of, refused, stage, unstorable
from windlass_child.protocol.validation import Encoded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from windlass.kickoffs.files import FileChanges
    from windlass.kickoffs.outcome import Outcome, TokenUsage
    from windlass.kickoffs.tasks import Warning_
    from windlass.store.audit import Actor
    from windlass.store.database import Database, Row
    from windlass_child.protocol.fields import Text

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


class Endings(Store):
    """Ends and stops kickoffs, and returns interrupted ones to the queue."""

    async def settle(
        self,
        kickoff: UUID,
        attempt: int,
        outcome: Outcome,
        usage: TokenUsage,
        warnings: Sequence[Warning_],
        *,
        changes: FileChanges | None = None,
        last: Batch | None = None,
    ) -> State | None:
        """Writes the outcome as the final state, the changes of the files, and the events and task records of `last`,
        none of which may be large. Adds only warnings that the kickoff does not have.

        Returns the final state. It is CANCELLED when a stop was requested, for every outcome. Returns None, and
        writes nothing, when the kickoff has gone on to another attempt or has ended. Raises Unstorable when PostgreSQL
        refuses a value permanently.
        """
        if not outcome.state.ended:
            raise ValueError(f"no run ends as {outcome.state}")
        batch = replace(last or Batch(), warnings=warnings, usage=usage)
        try:
            return await _settle(self._database, kickoff, attempt, outcome, batch, changes)
        except psycopg.Error as error:
            if not refused(error):
                raise
            if outcome.structured is None or last is not None:
                raise unstorable(error) from error
        crashed = failure(Reason.CRASHED, NO_JSON_ERROR)
        return await _settle(self._database, kickoff, attempt, crashed, batch, changes)

    async def requeue(
        self,
        kickoff: UUID,
        attempt: int,
        interruption: Interruption,
        *,
        max_losses: int,
        isolated: bool = True,
        process_started: bool = True,
    ) -> State | None:
        """Counts a loss, or without `process_started` an attempt that never started. Returns the new state.

        The state is PENDING, to run again after a pause, or CANCELLED when a stop was requested. Returns None, and
        changes nothing, when the kickoff has gone on to another attempt, has had `max_losses` losses, or has had
        MOST_UNSTARTED attempts in a row that never started. With `isolated`, the zygote of its later attempts serves no
        other kickoff.
        """
        values = {
            "kickoff": kickoff,
            "attempt": attempt,
            "isolated": isolated,
            "process_started": process_started,
            **_bounds(max_losses),
        }
        return _state(await self._database.row(SQL["requeue"], {**values, **interruption.columns()}))

    async def retry(self, kickoff: UUID, attempt: int, interruption: Interruption, *, pause: float) -> bool:
        """Requeues the kickoff of a failed run, to run again after `pause` seconds.

        Returns False, and changes nothing, when the kickoff has gone on to another attempt or a stop was requested.
        """
        values = {"kickoff": kickoff, "attempt": attempt, "pause": timedelta(seconds=pause)}
        return bool(await self._database.rows(SQL["retry"], {**values, **interruption.columns()}))

    async def release(self, worker: UUID, running: Sequence[UUID] = ()) -> list[tuple[UUID, int, State]]:
        """Requeues all kickoffs that this worker holds, except those in `running`, without counting a loss.

        Returns (id, attempt, state) of each. The state is PENDING, or CANCELLED when a stop was requested.
        """
        rows = await self._database.rows(SQL["release"], {"worker": worker, "running": list(running), "why": RELEASED})
        return [(row["id"], row["attempt"], State(row["state"])) for row in rows]

    async def reap(
        self, except_for: Sequence[UUID] = (), *, max_losses: int, limit: int = 100
    ) -> list[tuple[UUID, State]]:
        """Ends the leases that were not renewed in time, and returns each kickoff with its new state. Leaves the
        kickoffs in `except_for`.

        The state is PENDING, FAILED after more than `max_losses` losses or MOST_UNSTARTED attempts in a row that never
        started, or CANCELLED when a stop was requested.
        """
        values = {
            **_bounds(max_losses),
            "limit": limit,
            "error": lost_too_often(max_losses),
            "error_unstarted": never_started(max_losses),
            "why": LEASE_ENDED,
            "why_unstarted": NEVER_STARTED,
            "except_for": list(except_for),
        }
        rows = await self._database.rows(SQL["reap"], values)
        return [(row["id"], State(row["state"])) for row in rows]

    async def end_all_leases(self) -> int:
        """Ends all leases at once.

        Only for a server that has just started the database, and so knows that no worker of it is running.
        """
        return await self._database.execute(SQL["end_all_leases"])

    async def stop(self, kickoff: UUID, by: Actor = COMMAND_LINE) -> State | None:
        """Records a stop request, and who sent it. Returns the state of the kickoff afterwards.

        A waiting kickoff is now CANCELLED. A running one is still STARTED, and its worker is notified. An ended kickoff
        keeps its state. Returns None for an unknown kickoff. The audit log has an entry of the first request.
        """
        asked = await self._database.row(SQL["stop"], {"kickoff": kickoff, **_asked_by(by)}, soon=True)
        return _state(asked or await self._database.row(SQL["state"], {"kickoff": kickoff}, soon=True))

    async def matching(self, wanted: StopFilter) -> Matching | None:
        """Returns some of the open kickoffs that match and have no stop request; None when there are none."""
        values = {
            "deployment": wanted.deployment,
            "states": [str(state) for state in wanted.states],
            "owner": wanted.owner,
            "user": wanted.user,
            "before": wanted.before,
            "limit": MATCHING_AT_ONCE,
        }
        rows = await self._database.rows(SQL["matching"], values)
        if not rows:
            return None
        running = [row["id"] for row in rows if row["state"] == State.STARTED]
        waiting = [row["id"] for row in rows if row["state"] != State.STARTED]
        return Matching(waiting, running, rows[0]["read_at"])

    async def stop_waiting(self, kickoffs: Sequence[UUID], by: Actor) -> int:
        """Cancels the waiting kickoffs among these in one transaction, and returns their number.

        The kickoffs are of one deployment. They have one entry of the audit log.
        """
        return len(await self._database.rows(SQL["stop_waiting"], {"kickoffs": list(kickoffs), **_asked_by(by)}))


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


def _bounds(max_losses: int) -> dict[str, int]:
    """Returns the bounds of attempts. Without any further attempt after a loss, also one whose process is not known to
    have started counts: its worker may have died before it reported the start.
    """
    return {"max_losses": max_losses, "most_unstarted": MOST_UNSTARTED if max_losses else 1}


def _spent(usage: TokenUsage, warnings: Sequence[Warning_]) -> dict[str, str]:
    return {"token_usage": to_json(usage.to_json()), "warnings": warnings_json(warnings)}


def _asked_by(by: Actor) -> Row:
    return {**by.columns(), "by": by.words, "recorded": by.kind != "server", "error": STOPPED}


def _state(row: Row | None) -> State | None:
    return State(row["state"]) if row else None

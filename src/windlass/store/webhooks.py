"""The endpoints, webhooks and deliveries of kickoffs. The events and the end of a kickoff are their outbox."""

# See docs/decisions/webhooks.md#a-delivery-is-stored-before-it-is-sent
# See docs/decisions/webhooks.md#a-reminder-is-a-delivery-of-the-same-event

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from windlass.kickoffs.events import to_json
from windlass.kickoffs.ids import LAST_ID, new_id
from windlass.kickoffs.states import State
from windlass.kickoffs.tasks import Warning_
from windlass.kickoffs.webhooks import End, Event, Hook, Planned, Webhook, merged, planned
from windlass.store.audit import Change, record
from windlass.store.database import Store, fetch, filled, queries

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from windlass.store.database import Connection, Database, Row, Statement

SQL = queries("webhooks")
JOB = "deliver_webhooks"
MOST_PLANNED = 200
"""Events that are read at once for further deliveries."""
SENT_AT_ONCE = 50
MOST_ATTEMPTS = 20
"""Attempts of a delivery that are kept."""
MOST_REMINDERS = 100
"""Reminders of a question at most."""
PROBING = 10
"""Failures in a row after which an endpoint is paused, and only one delivery is tried at the end of each pause."""
PATIENT = 250
"""Failures in a row after which the pauses are long."""
SOON, LATE = 15.0, 300.0
"""Seconds of a short and of a long pause."""
MOST_READ = 5000
"""Deliveries that one search for a page of a list reads at most."""
FAILED = Warning_(
    "webhook_failed",
    "A webhook of this kickoff was not accepted in any attempt. `windlass deliveries list --state failed` shows why.",
)
_END = Planned(Hook.CREW)
LISTED: dict[str, Statement] = {
    name: filled(SQL["list"], which=which)
    for name, which in {
        "all": SQL["which_all"],
        "deployment": SQL["which_deployment"],
        "kickoff": SQL["which_kickoff"],
        "only": SQL["which_one"],
    }.items()
}
EndpointWord = Literal["active", "failing", "paused", "off"]
DeliveryState = Literal["waiting", "delivered", "failed"]


@dataclass(frozen=True, slots=True)
class NewEndpoint:
    """An endpoint as it is stored. `address` is encrypted, `host` is shown."""

    id: UUID
    deployment: UUID
    host: str
    address: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint to which deliveries may be due. `address` and `secrets` are encrypted. `asks` means that it is where
    the deployment sends its questions, and `approvers` are those who may answer (rights.may_answer).
    """

    id: UUID
    deployment_id: UUID
    slug: str
    address: str
    secrets: str | None
    failures: int
    disabled: bool
    paused: float | None
    asks: bool
    approvers: list[str]

    @property
    def probing(self) -> bool:
        return self.failures >= PROBING


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether an endpoint accepts what is sent. `failures` are those in a row."""

    failures: int
    paused_until: datetime | None
    disabled_at: datetime | None

    @property
    def endpoint_state(self) -> EndpointWord:
        """Returns `off` after an answer of 410, `paused` while it gets nothing, and `failing` after a failure."""
        if self.disabled_at is not None:
            return "off"
        if self.paused_until is not None and self.paused_until > datetime.now(UTC):
            return "paused"
        return "failing" if self.failures else "active"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointState(Health):
    """What is known of an endpoint. `address` is encrypted."""

    id: UUID
    host: str
    address: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A delivery that is not delivered. `types` are those of its events that are sent, None for all. `tries` are the
    failures that count for giving up. With `counts` the next one counts too: it is made at its own time, and not
    earlier.
    """

    id: UUID
    kickoff_id: UUID
    hook: Hook
    first: int | None
    last: int | None
    types: frozenset[str] | None
    tries: int
    counts: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request. `seconds` is its duration, `status` that of the answer, `answer` its beginning."""

    at: str
    seconds: float
    status: int | None
    error: str | None
    answer: str

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("at", "seconds", "status", "error", "answer")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery(Health):
    """A delivery with its newest attempts, the newest last, and the health of its endpoint. `host` is None if the
    endpoint is gone. `next_at` is the time of the next attempt, None without one.
    """

    id: UUID
    deployment: str
    kickoff_id: UUID
    hook: str
    host: str | None
    state: DeliveryState
    attempts: list[dict[str, Any]]
    created_at: datetime
    finished_at: datetime | None
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """Selects deliveries: those of a deployment, or of a kickoff, or only one. The page begins before the id `before`,
    which is left out.
    """

    deployment: UUID | None = None
    kickoff: UUID | None = None
    state: str | None = None
    before: UUID | None = None
    only: UUID | None = None
    sees: UUID | None = None
    """The user to whose deployments the list is limited."""


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """Deliveries, newest first. `next` is the `before` of the next page, None after the last one. A page may have fewer
    deliveries than the limit, even none, although more follow.
    """

    rows: list[Delivery]
    next: UUID | None


@dataclass(frozen=True, slots=True)
class Given:
    """The webhooks of one request, and the endpoints that they need."""

    webhooks: list[Webhook]
    endpoints: list[NewEndpoint]


async def replace(connection: Connection, kickoff: UUID, given: Given) -> None:
    """Replaces the hooks that are given, and keeps the others. A new endpoint gets what happens from now on, and the
    events that have no delivery yet.

    The transaction of `connection` holds the lock of the row of the kickoff.
    """
    new = frozenset().union(*(one.hooks for one in given.webhooks))
    rows = await fetch(connection, SQL["of_kickoff"], {"kickoff": kickoff})
    before = [(Webhook.of_json(row["endpoint_id"], row["hooks"]), row["planned_seq"]) for row in rows]
    kept = [dataclasses.replace(one, hooks=one.hooks - new) for one, _ in before]
    for endpoint in given.endpoints:
        await connection.execute(SQL["add_endpoint"], _columns(endpoint))
    webhooks = merged([*kept, *given.webhooks])
    afters = [_planned_by(before, one.hooks) for one in webhooks]
    await connection.execute(SQL["replace"], {"kickoff": kickoff, **hook_columns(webhooks), "afters": afters})


def _planned_by(before: Sequence[tuple[Webhook, int]], hooks: frozenset[Hook]) -> int | None:
    """Returns the last event for which all of these hooks have their deliveries, None if none of them was there."""
    events = hooks - {Hook.CREW}
    return min((planned for one, planned in before if one.hooks & events), default=None)


class WebhookStore(Store):
    """`soon` and `late` are the seconds of a short and of a long pause of an endpoint."""

    def __init__(self, database: Database, *, soon: float = SOON, late: float = LATE) -> None:
        super().__init__(database)
        self._pauses = {"patient": PATIENT, "soon": soon, "late": late}

    async def begin(self, endpoint: UUID) -> Endpoint | None:
        """Returns the endpoint, None if its deployment was removed."""
        row = await self._database.row(SQL["begin"], {"endpoint": endpoint})
        return Endpoint(**row) if row else None

    async def finish(self, endpoint: UUID) -> None:
        """Defers the next job of the endpoint, if anything waits there."""
        async with self._database.transaction() as connection:
            await connection.execute(SQL["drop_later_jobs"], {"endpoint": endpoint})
            await connection.execute(SQL["defer_next"], {"endpoint": endpoint, "probing": PROBING})

    async def due(self, endpoint: UUID, busy: Collection[UUID], *, probe: bool) -> UUID | None:
        """Returns the next kickoff with a delivery that is due, with `probe` also one that is due later."""
        values = {"endpoint": endpoint, "busy": list(busy), "probe": probe}
        row = await self._database.row(SQL["due"], values)
        return row["kickoff_id"] if row else None

    async def waiting(self, endpoint: Endpoint, kickoff: UUID) -> list[Waiting]:
        """Returns the next deliveries in their order, after it has planned those of new events.

        Returns none, and clears the mark of the kickoff, when there is nothing to deliver.
        """
        values = {"endpoint": endpoint.id, "kickoff": kickoff, "limit": SENT_AT_ONCE}
        async with self._database.transaction() as connection:
            rows = await fetch(connection, SQL["lock"], values)
            if rows:
                await _plan(connection, endpoint, kickoff, rows[0])
            found = await fetch(connection, SQL["waiting"], values)
            if not found:
                await connection.execute(SQL["nothing_due"], values)
        return [_waiting(row, kickoff) for row in found]

    async def end_of(self, kickoff: UUID) -> End | None:
        row = await self._database.row(SQL["ended"], {"kickoff": kickoff})
        return End(**{**row, "state": State(row["state"])}) if row else None

    async def meta(self, kickoff: UUID) -> str | None:
        row = await self._database.row(SQL["meta"], {"kickoff": kickoff})
        return row["meta"] if row else None

    async def events(self, kickoff: UUID, first: int, last: int) -> list[Event]:
        rows = await self._database.rows(SQL["events"], {"kickoff": kickoff, "first": first, "last": last})
        return [Event(**row) for row in rows]

    async def recent(self, kickoff: UUID, seq: int, types: Sequence[str]) -> list[Event]:
        """Returns the newest events of these types before the number, the newest first."""
        values = {"kickoff": kickoff, "seq": seq, "types": list(types)}
        return [Event(**row) for row in await self._database.rows(SQL["recent"], values)]

    async def whole_output(self, kickoff: UUID, at: datetime) -> str | None:
        row = await self._database.row(SQL["whole_output"], {"kickoff": kickoff, "at": at})
        return row["output"] if row else None

    async def delivered(self, endpoint: UUID, delivery: UUID, attempt: Attempt, *, after_failure: bool) -> None:
        """Records a success. With `after_failure`, all that waits at the endpoint is tried at once."""
        if not after_failure:
            await self._database.execute(SQL["attempted"], _values(delivery, "delivered", attempt))
            return
        async with self._database.transaction() as connection:
            await connection.execute(SQL["attempted"], _values(delivery, "delivered", attempt))
            await connection.execute(SQL["answered"], {"endpoint": endpoint})

    async def failed(
        self, endpoint: UUID, delivery: Waiting, attempt: Attempt, *, pause: float, wait: float | None = None
    ) -> bool:
        """Records a failure. If it counts, the next attempt is after `pause` seconds. `wait` is how long the endpoint
        asks to be left alone. Returns whether the endpoint is paused now.
        """
        values = {"endpoint": endpoint, "kickoff": delivery.kickoff_id, "delivery": delivery.id}
        async with self._database.transaction() as connection:
            after = timedelta(seconds=pause) if delivery.counts else None
            await connection.execute(SQL["attempted"], _values(delivery.id, "waiting", attempt, after))
            # The endpoint first, as after a success: otherwise the two could deadlock.
            paused = await self._note_failure(connection, endpoint, wait)
            await connection.execute(SQL["retry_at"], values)
        return paused

    async def given_up(self, endpoint: UUID, delivery: Waiting, attempt: Attempt) -> bool:
        """Records the last failure of a delivery. Returns whether the endpoint is paused now."""
        async with self._database.transaction() as connection:
            await connection.execute(SQL["attempted"], _values(delivery.id, "failed", attempt))
            await _warn(connection, delivery.kickoff_id)
            return await self._note_failure(connection, endpoint, None)

    async def _note_failure(self, connection: Connection, endpoint: UUID, wait: float | None) -> bool:
        values = {"endpoint": endpoint, "wait": wait, "probing": PROBING, **self._pauses}
        rows = await fetch(connection, SQL["failing"], values)
        return bool(rows and rows[0]["paused"])

    async def pause(self, endpoint: UUID, seconds: float) -> None:
        await self._database.execute(SQL["pause"], {"endpoint": endpoint, "pause": timedelta(seconds=seconds)})

    async def postpone(self, endpoint: UUID, seconds: float) -> None:
        """Defers the job of the endpoint, with the others that wait there."""
        values = {"endpoint": endpoint, "pause": timedelta(seconds=seconds)}
        async with self._database.transaction() as connection:
            await connection.execute(SQL["drop_later_jobs"], values)
            await connection.execute(SQL["postpone"], values)

    async def defer_forgotten(self) -> None:
        """Defers the job of each endpoint where something is due and no job waits, as after a job that failed."""
        await self._database.execute(SQL["defer_forgotten"])

    async def disable(self, endpoint: UUID, delivery: Waiting, attempt: Attempt) -> None:
        """Records that the endpoint wants no more deliveries."""
        async with self._database.transaction() as connection:
            await connection.execute(SQL["attempted"], _values(delivery.id, "failed", attempt))
            await _warn(connection, delivery.kickoff_id)
            await connection.execute(SQL["disable"], {"endpoint": endpoint})

    async def fail_waiting(self, endpoint: UUID, kickoff: UUID) -> None:
        """Gives up what waits for an endpoint that is switched off."""
        async with self._database.transaction() as connection:
            await connection.execute(SQL["fail_waiting"], {"endpoint": endpoint, "kickoff": kickoff})
            await _warn(connection, kickoff)

    async def set_secrets(
        self, deployment: UUID, secrets: str, before: str | None, change: Change | None = None
    ) -> bool:
        """Stores the encrypted secrets. Returns False if another server has changed them since they were `before`."""
        values = {"deployment": deployment, "secrets": secrets, "before": before}
        async with self._database.transaction() as connection:
            if not await fetch(connection, SQL["set_secrets"], values):
                return False
            if change is not None:
                await record(connection, change)
        return True

    async def secrets(self, slug: str) -> tuple[UUID, str | None] | None:
        """Returns the id of the deployment and its encrypted secrets. Returns None for an unknown deployment."""
        row = await self._database.row(SQL["secrets"], {"slug": slug})
        return (row["id"], row["secrets"]) if row else None

    async def change_webhooks(
        self, slug: str, changes: Mapping[Hook, Row | None], endpoints: Sequence[NewEndpoint], change: Change
    ) -> dict[str, Any] | None:
        """Sets or, with None, removes webhooks of a deployment, and returns all of them. Returns None for an unknown
        deployment. An endpoint that is set is switched on.
        """
        async with self._database.change() as connection:
            rows = await fetch(connection, SQL["of_deployment"], {"slug": slug})
            if not rows:
                return None
            merged = {**rows[0]["webhooks"], **{str(hook): options for hook, options in changes.items()}}
            webhooks = {hook: options for hook, options in merged.items() if options is not None}
            for one in endpoints:
                await connection.execute(SQL["add_endpoint"], _columns(one))
                await connection.execute(SQL["switch_on"], {"id": one.id})
            values = {"deployment": rows[0]["id"], "webhooks": to_json(webhooks)}
            await connection.execute(SQL["set_of_deployment"], values)
            await record(connection, change)
        return webhooks

    async def endpoints(self, ids: Sequence[UUID]) -> dict[UUID, EndpointState]:
        rows = await self._database.rows(SQL["endpoints"], {"ids": list(ids)})
        return {row["id"]: EndpointState(**row) for row in rows}

    async def of_deployment(self, slug: str) -> dict[str, Any] | None:
        """Returns the webhooks of a deployment: hook -> its options. Returns None for an unknown deployment."""
        row = await self._database.row(SQL["webhooks_of"], {"slug": slug})
        return row["webhooks"] if row else None

    async def enable(self, endpoint: UUID) -> None:
        """Records that the endpoint has accepted a request. All that waits there is tried at once."""
        await self._database.execute(SQL["enable"], {"endpoint": endpoint})

    async def list(self, wanted: DeliveryFilter, *, limit: int = 50) -> DeliveryPage:
        """Returns the newest deliveries that match. Reads at most MOST_READ of them."""
        values = {
            "deployment": wanted.deployment,
            "kickoff": wanted.kickoff,
            "only": wanted.only,
            "state": wanted.state,
            "sees": wanted.sees,
            "before": wanted.before or LAST_ID,
            "limit": limit,
            "most_read": MOST_READ,
        }
        which = next((name for name in ("only", "kickoff", "deployment") if values[name] is not None), "all")
        rows = await self._database.rows(LISTED[which], values, soon=True)
        edges = [(row.pop("last_seen"), row.pop("all_seen")) for row in rows]
        found = [Delivery(**row) for row in rows if row["id"] is not None]
        if len(found) == limit:
            return DeliveryPage(found, found[-1].id)
        last_seen, all_seen = edges[0]
        return DeliveryPage(found, None if all_seen else last_seen)

    async def find(self, delivery: UUID) -> Delivery | None:
        page = await self.list(DeliveryFilter(only=delivery), limit=1)
        return page.rows[0] if page.rows else None

    async def redeliver(self, delivery: UUID, change: Change) -> bool:
        """Sends a delivery again, and enables its endpoint. Returns False for an unknown delivery."""
        async with self._database.transaction() as connection:
            if not await fetch(connection, SQL["redeliver"], {"delivery": delivery}):
                return False
            await record(connection, change)
        return True

    async def remind(self, *, limit: int = 1000) -> None:
        """Calls the webhooks of questions again that nobody has answered in time."""
        async with self._database.transaction() as connection:
            rows = await fetch(connection, SQL["remind"], {"limit": limit, "most": MOST_REMINDERS})
            for row in rows:
                values = {"kickoff": row["kickoff_id"], "deployment": row["deployment_id"], "types": None}
                values["endpoint"] = row["endpoint_id"]
                await _add(connection, values, [Planned(Hook.HUMAN_INPUT, row["seq"], row["seq"])])
                await connection.execute(SQL["send_now"], values)

    async def remove_unused_endpoints(self) -> None:
        await self._database.execute(SQL["remove_unused_endpoints"])


async def _warn(connection: Connection, kickoff: UUID) -> None:
    """Adds a warning to the kickoff that one of its webhooks has failed, once."""
    await connection.execute(SQL["warn"], {"kickoff": kickoff, "warnings": to_json([FAILED.to_json()])})


def hook_columns(webhooks: Sequence[Webhook]) -> dict[str, list[Any]]:
    """Returns the columns of webhooks for a statement."""
    types = [one.types for one in webhooks]
    return {
        "hook_endpoints": [one.endpoint for one in webhooks],
        "hooks": [to_json(one.to_json()) for one in webhooks],
        "hook_types": [None if one is None else ",".join(one) for one in types],
    }


def _waiting(row: Row, kickoff: UUID) -> Waiting:
    types = None if row["types"] is None else frozenset(row["types"])
    numbers = row["first_seq"], row["last_seq"]
    return Waiting(row["id"], kickoff, Hook(row["hook"]), *numbers, types, row["tries"], row["counts"])


async def _plan(connection: Connection, endpoint: Endpoint, kickoff: UUID, row: Row) -> None:
    """Adds the deliveries of the events that have none yet, and that of the end of the kickoff."""
    webhook = Webhook.of_json(endpoint.id, row["hooks"])
    after, end_planned = row["planned_seq"], row["end_planned"]
    types = None if webhook.events is None else sorted(webhook.events)
    values = {"endpoint": endpoint.id, "kickoff": kickoff, "deployment": endpoint.deployment_id, "types": types}
    read = {**values, "after": after, "limit": MOST_PLANNED, "with_events": webhook.types != []}
    rows = await fetch(connection, SQL["unplanned"], read)
    if not rows:
        return
    (found,) = rows
    events = list(zip(found["seqs"] or (), found["types"] or (), found["sizes"] or (), strict=True))
    plan = planned(webhook, events)
    last = events[-1][0] if events else after
    ends = not end_planned and State(found["state"]).ended and len(events) < MOST_PLANNED
    if ends and Hook.CREW in webhook.hooks:
        plan.append(_END)
    await _add(connection, values, plan)
    if events or ends:
        await connection.execute(SQL["note_planned"], {**values, "seq": last, "end": end_planned or ends})


async def _add(connection: Connection, values: Row, plan: Sequence[Planned]) -> None:
    if plan:
        columns = {
            "ids": [new_id() for _ in plan],
            "hooks": [str(one.hook) for one in plan],
            "firsts": [one.first for one in plan],
            "lasts": [one.last for one in plan],
        }
        await connection.execute(SQL["plan"], {**values, **columns})


def _values(delivery: UUID, state: str, attempt: Attempt, pause: timedelta | None = None) -> Row:
    values = {"delivery": delivery, "state": state, "pause": pause, "most": MOST_ATTEMPTS}
    return {**values, "attempt": to_json([attempt.to_json()])}


def _columns(one: NewEndpoint) -> Row:
    return {"id": one.id, "deployment": one.deployment, "host": one.host, "address": one.address}

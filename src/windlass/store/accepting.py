from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from windlass.kickoffs.outcome import SUPERSEDED
from windlass.store.database import Store, queries
from windlass.store.webhooks import hook_columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from windlass.kickoffs.webhooks import Webhook
    from windlass.store.audit import Actor
    from windlass.store.database import Database, Row
    from windlass.store.webhooks import NewEndpoint

SQL = queries("accepting")
MAX_WAITING = 10_000
"""The queue limit of deployments that set none."""
USER_SHARE = 0.25
IDEMPOTENCY_LASTS = timedelta(hours=24)


KNOWN_FOR = 1.0
"""Seconds for which a counted room of a queue is used."""
MOST_KNOWN = 10_000
"""The most queues whose room is remembered."""
Queue = tuple[UUID, UUID | None]
"""A deployment and a user: the kickoffs of that user in the deployment's queue. With None, the whole queue."""
ANY_USER = UUID(int=0)
"""Stands for every user. While the whole queue is smaller than one user's share, no user can exceed the share."""


@dataclass(frozen=True, slots=True)
class NewKickoff:
    """A kickoff that is not stored yet.

    `inputs`, `meta` and `limits` are JSON text. `request_digest` is set together with `idempotency_key`.
    The kickoff starts at `run_at` or later. Waiting kickoffs of a deployment with a higher `priority` start first.
    `concurrency_strategy` is "enqueue", "reject", "cancel_running", or None for the strategy of the deployment. `by` is
    who starts the kickoff.
    """

    id: UUID
    deployment_id: UUID
    version_id: UUID
    user_id: UUID | None
    inputs: str
    meta: str | None = None
    warnings: str = "[]"
    idempotency_key: str | None = None
    request_digest: bytes | None = None
    priority: int = 0
    run_at: datetime | None = None
    concurrency_key: str | None = None
    concurrency_strategy: str | None = None
    limits: str | None = None
    by: Actor | None = None
    webhooks: Sequence[Webhook] = ()
    endpoints: Sequence[NewEndpoint] = ()
    """Those of the webhooks that may not be stored yet."""

    @property
    def reservation(self) -> tuple[UUID, UUID, str] | None:
        """The scope in which an idempotency key is unique, and the key; None without a key."""
        if self.idempotency_key is None:
            return None
        return (self.deployment_id, self.user_id or self.deployment_id, self.idempotency_key)

    @property
    def claim_to_key(self) -> tuple[UUID, str] | None:
        """The concurrency key, unless the kickoff is sure to queue up for it; None otherwise.

        The strategy of the deployment is not known here.
        """
        if self.concurrency_key is None or self.concurrency_strategy == "enqueue":
            return None
        return (self.deployment_id, self.concurrency_key)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The number of waiting kickoffs of a deployment, and the largest number that is allowed.

    `waiting` is not counted beyond `most`. With `of_user`, both numbers are those of one user.
    """

    waiting: int
    most: int
    of_user: bool = False


@dataclass(frozen=True, slots=True)
class Holder:
    """The open kickoff that holds a concurrency key, and the user who started it, None for the organization."""

    id: UUID
    user_id: UUID | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of a batch, by kickoff id.

    A kickoff that is in no member has an idempotency key that is in use; `reserved` returns the earlier kickoff.
    """

    ids: set[UUID]
    full: dict[UUID, Backlog] = field(default_factory=dict)
    taken: dict[UUID, Holder] = field(default_factory=dict)
    """The holder of the concurrency key, for each kickoff that may not queue up behind it."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """The kickoff that was started with an idempotency key, and the digest of its request."""

    kickoff_id: UUID
    request_digest: bytes


class Accepting(Store):
    """Stores kickoffs in batches.

    Counts a queue, or a user's share of it, only when it may be full. A queue that was less than half full a moment ago
    is not counted again. `max_waiting` is the queue limit of deployments that set none. `user_share` is the fraction of
    a queue that the kickoffs of one user may take.
    """

    def __init__(
        self,
        database: Database,
        *,
        idempotency_lasts: timedelta = IDEMPOTENCY_LASTS,
        max_waiting: int = MAX_WAITING,
        user_share: float = USER_SHARE,
    ) -> None:
        super().__init__(database)
        self._settings = {"keep": idempotency_lasts, "max_waiting": max_waiting, "user_share": user_share}
        self._room: dict[Queue, Room] = {}

    async def accept(self, batch: Sequence[NewKickoff]) -> Accepted:
        """Inserts and commits the kickoffs that the queues and keys permit."""
        values = values_of(batch) | self._settings
        if self._is_ordinary(batch):
            (row,) = await self._database.rows(SQL["accept_all"], values)
            return Accepted(set(row["accepted"] or ()))
        keys = {f"{deployment} {key}" for deployment, key in filter(None, (new.claim_to_key for new in batch))}
        if keys:
            row = await self._accept_one_by_key(values, list(keys))
        else:
            (row,) = await self._database.rows(SQL["accept_what_fits"], values)
        self._note_room(row)
        return _accepted(row)

    def _is_ordinary(self, batch: Sequence[NewKickoff]) -> bool:
        if any(new.concurrency_key is not None for new in batch):
            return False
        wanted = Counter(new.deployment_id for new in batch)
        of_users = Counter((new.deployment_id, new.user_id) for new in batch if new.user_id)
        return all(self._take((one, None), count) for one, count in wanted.items()) and all(
            self._take((one, ANY_USER), count) or self._take((one, user), count)
            for (one, user), count in of_users.items()
        )

    def _take(self, queue: Queue, count: int) -> bool:
        room = self._room.get(queue)
        return room is not None and room.take(count)

    async def _accept_one_by_key(self, values: dict[str, Any], keys: list[str]) -> Row:
        """Stores a batch under locks on its concurrency keys.

        So two servers can't both find a key free: the second one sees the rows of the first one.
        """
        newer = {"ids": values["ids"], "strategies": values["strategies"], "error": SUPERSEDED}
        async with self._database.connection() as connection, connection.pipeline(), connection.transaction():
            await connection.execute(SQL["lock_keys"], {"names": keys})
            accepting = await connection.execute(SQL["accept_what_fits"], values)
            await connection.execute(SQL["supersede"], newer)
        (row,) = await accepting.fetchall()
        return row

    def _note_room(self, row: Row) -> None:
        if len(self._room) > MOST_KNOWN:
            self._room.clear()
        # The other half is reserved for kickoffs that other servers accept meanwhile, and for this batch.
        accepted = len(row["accepted"] or ())
        for deployment, left, left_to_any_user in row["room"] or ():
            self._room[UUID(deployment), None] = Room(left // 2 - accepted)
            self._room[UUID(deployment), ANY_USER] = Room(left_to_any_user // 2 - accepted)
        for deployment, user, left in row["room_of_users"] or ():
            self._room[UUID(deployment), UUID(user)] = Room(left // 2 - accepted)

    async def reserved(self, reservation: tuple[UUID, UUID, str]) -> Reserved | None:
        deployment, principal, key = reservation
        row = await self._database.row(SQL["reserved"], {"deployment": deployment, "principal": principal, "key": key})
        return Reserved(**row) if row else None

    async def forget_idempotency_keys(self, *, limit: int = 1000) -> int:
        return await self._database.execute(SQL["forget_idempotency_keys"], {"limit": limit})


@dataclass(slots=True)
class Room:
    """The number of further kickoffs that a queue, or a user's share of it, is sure to take for KNOWN_FOR seconds."""

    left: int
    counted_at: float = field(default_factory=time.monotonic)

    def take(self, count: int) -> bool:
        """Returns whether there is room for `count` kickoffs, and subtracts them in either case."""
        self.left -= count
        return self.left >= 0 and time.monotonic() - self.counted_at < KNOWN_FOR


def values_of(batch: Sequence[NewKickoff]) -> dict[str, Any]:
    """Returns the values of a batch for its statement."""
    return _columns(batch) | _entries(batch) | _webhooks(batch)


def _columns(batch: Sequence[NewKickoff]) -> dict[str, list[Any]]:
    return {
        "ids": [new.id for new in batch],
        "deployments": [new.deployment_id for new in batch],
        "versions": [new.version_id for new in batch],
        "users": [new.user_id for new in batch],
        "inputs": [new.inputs for new in batch],
        "metas": [new.meta for new in batch],
        "warnings": [new.warnings for new in batch],
        "keys": [new.idempotency_key for new in batch],
        "digests": [new.request_digest for new in batch],
        "priorities": [new.priority for new in batch],
        "run_ats": [new.run_at for new in batch],
        "concurrency_keys": [new.concurrency_key for new in batch],
        "strategies": [new.concurrency_strategy for new in batch],
        "limits": [new.limits for new in batch],
        "starters": [new.by.words if new.by else None for new in batch],
    }


def _entries(batch: Sequence[NewKickoff]) -> dict[str, list[Any]]:
    """Returns the entries of the audit log for the kickoffs that persons start."""
    started = [(new.id, new.by.columns()) for new in batch if new.by is not None and new.by.is_person]
    return {
        "started": [kickoff for kickoff, _ in started],
        "entries": [one["entry"] for _, one in started],
        "by_users": [one["user_id"] for _, one in started],
        "by_names": [one["user"] for _, one in started],
        "by_tokens": [one["token_id"] for _, one in started],
        "by_addresses": [one["address"] for _, one in started],
    }


def _webhooks(batch: Sequence[NewKickoff]) -> dict[str, list[Any]]:
    hooks = [(new.id, one) for new in batch for one in new.webhooks]
    endpoints = {one.id: one for new in batch for one in new.endpoints}.values()
    return {
        "endpoints": [one.id for one in endpoints],
        "endpoint_deployments": [one.deployment for one in endpoints],
        "hosts": [one.host for one in endpoints],
        "addresses": [one.address for one in endpoints],
        "hooked": [kickoff for kickoff, _ in hooks],
        **hook_columns([one for _, one in hooks]),
    }


def _accepted(row: Row) -> Accepted:
    return Accepted(
        set(row["accepted"] or ()),
        {UUID(new): Backlog(waiting, most, of_user) for new, waiting, most, of_user in row["full"] or ()},
        {UUID(new): Holder(UUID(holder), UUID(user) if user else None) for new, holder, user in row["taken"] or ()},
    )

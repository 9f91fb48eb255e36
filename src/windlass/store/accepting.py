from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from windlass.kickoffs.stopping import SUPERSEDED
from windlass.store.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from windlass.store.database import Database, Row

SQL = queries("accepting")
KNOWN_FOR = 1.0
"""Seconds."""
MOST_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class NewKickoff:
    """A row to be. `inputs`, `meta`, `unacted` and `limits` are JSON text; `request_digest` goes with
    `idempotency_key`.

    It starts at `run_at` or later, and among those of its deployment that wait those of higher `priority` go first.
    `concurrency_strategy` is "enqueue", "reject", "cancel_running", or None for what its deployment says.
    """

    id: UUID
    deployment_id: UUID
    version_id: UUID
    user_id: UUID | None
    inputs: str
    meta: str | None = None
    unacted: str | None = None
    warnings: str = "[]"
    idempotency_key: str | None = None
    request_digest: bytes | None = None
    priority: int = 0
    run_at: datetime | None = None
    concurrency_key: str | None = None
    concurrency_strategy: str | None = None
    limits: str | None = None

    @property
    def reservation(self) -> tuple[UUID, UUID, str] | None:
        """Who may not use the same idempotency key twice."""
        if self.idempotency_key is None:
            return None
        return (self.deployment_id, self.user_id or self.deployment_id, self.idempotency_key)

    @property
    def claim_to_key(self) -> tuple[UUID, str] | None:
        """The concurrency key that it does not just queue up for, as far as is known before its deployment is read."""
        if self.concurrency_key is None or self.concurrency_strategy == "enqueue":
            return None
        return (self.deployment_id, self.concurrency_key)


@dataclass(frozen=True, slots=True)
class Backlog:
    """`waiting` kickoffs of the deployment wait (it is not counted beyond the bound), and `most` may."""

    waiting: int
    most: int


@dataclass(frozen=True, slots=True)
class Holder:
    """The open kickoff that has a concurrency key, and the user who started it, None for the organization."""

    id: UUID
    user_id: UUID | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a batch, by id. One that is nowhere here has an idempotency key that is taken: ask `reserved`."""

    ids: set[UUID]
    full: dict[UUID, Backlog] = field(default_factory=dict)
    taken: dict[UUID, Holder] = field(default_factory=dict)
    """Who has its concurrency key, for one that would not queue up behind it."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """The kickoff that an idempotency key already stands for, and the digest of the request that made it."""

    kickoff_id: UUID
    request_digest: bytes


class Accepting:
    """Counts a queue only when it may be full: as long as it was less than half full a moment ago, it is not."""

    def __init__(self, database: Database, *, keep: timedelta, max_waiting: int) -> None:
        self._database = database
        self._settings = {"keep": keep, "max_waiting": max_waiting}
        self._room: dict[UUID, Room] = {}

    async def accept(self, batch: Sequence[NewKickoff]) -> Accepted:
        values = _columns(batch) | self._settings
        if self._is_ordinary(batch):
            (row,) = await self._database.rows(SQL["accept"], values)
            return Accepted(set(row["accepted"] or ()))
        keys = {f"{deployment} {key}" for deployment, key in filter(None, (new.claim_to_key for new in batch))}
        if keys:
            row = await self._accept_one_by_key(values, list(keys))
        else:
            (row,) = await self._database.rows(SQL["accept_with_care"], values)
        self._note_room(row)
        return _accepted(row)

    def _is_ordinary(self, batch: Sequence[NewKickoff]) -> bool:
        if any(new.concurrency_key is not None for new in batch):
            return False
        wanted = Counter(new.deployment_id for new in batch)
        return all((room := self._room.get(one)) and room.take(count) for one, count in wanted.items())

    async def _accept_one_by_key(self, values: dict[str, Any], keys: list[str]) -> Row:
        """Two servers never both find a key free: whoever comes second sees what the first one wrote."""
        newer = {"ids": values["ids"], "strategies": values["strategies"], "error": SUPERSEDED}
        async with self._database.connection() as connection, connection.pipeline(), connection.transaction():
            await connection.execute(SQL["lock_keys"], {"names": keys})
            accepting = await connection.execute(SQL["accept_with_care"], values)
            await connection.execute(SQL["supersede"], newer)
        (row,) = await accepting.fetchall()
        return row

    def _note_room(self, row: Row) -> None:
        if len(self._room) > MOST_KNOWN:
            self._room.clear()
        # The other half is for what other servers accept meanwhile, and for this batch.
        self._room |= {
            UUID(deployment): Room(left // 2 - len(row["accepted"] or ())) for deployment, left in row["room"] or ()
        }


@dataclass(slots=True)
class Room:
    """How many more a queue takes for sure, for a moment."""

    left: int
    counted_at: float = field(default_factory=time.monotonic)

    def take(self, count: int) -> bool:
        """Whether there is room for so many; they are counted as taken."""
        self.left -= count
        return self.left >= 0 and time.monotonic() - self.counted_at < KNOWN_FOR


async def reserved(database: Database, reservation: tuple[UUID, UUID, str]) -> Reserved | None:
    deployment, principal, key = reservation
    row = await database.row(SQL["reserved"], {"deployment": deployment, "principal": principal, "key": key})
    return Reserved(**row) if row else None


async def forget_idempotency_keys(database: Database, *, limit: int) -> int:
    return await database.execute(SQL["forget_idempotency_keys"], {"limit": limit})


def _columns(batch: Sequence[NewKickoff]) -> dict[str, list[Any]]:
    return {
        "ids": [new.id for new in batch],
        "deployments": [new.deployment_id for new in batch],
        "versions": [new.version_id for new in batch],
        "users": [new.user_id for new in batch],
        "inputs": [new.inputs for new in batch],
        "metas": [new.meta for new in batch],
        "unacted": [new.unacted for new in batch],
        "warnings": [new.warnings for new in batch],
        "keys": [new.idempotency_key for new in batch],
        "digests": [new.request_digest for new in batch],
        "priorities": [new.priority for new in batch],
        "run_ats": [new.run_at for new in batch],
        "concurrency_keys": [new.concurrency_key for new in batch],
        "strategies": [new.concurrency_strategy for new in batch],
        "limits": [new.limits for new in batch],
    }


def _accepted(row: Row) -> Accepted:
    return Accepted(
        set(row["accepted"] or ()),
        {UUID(new): Backlog(waiting, most) for new, waiting, most in row["full"] or ()},
        {UUID(new): Holder(UUID(holder), UUID(user) if user else None) for new, holder, user in row["taken"] or ()},
    )

"""Kickoffs in a database, as the tests of the store need them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from store.whole import loaded, whole
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.manifest import Manifest
from windlass.kickoffs.outcome import Outcome, TokenUsage
from windlass.kickoffs.states import Reason, State
from windlass.store.accepting import Accepted, NewKickoff
from windlass.store.deployments import Deployment, DeploymentStore
from windlass.store.ending import Interruption
from windlass.store.kickoffs import KickoffStore
from windlass.store.reporting import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.kickoffs.events import StoredEvent
    from windlass.kickoffs.tasks import TaskRecord, TaskRecords, Warning_
    from windlass.store.claiming import Claimed
    from windlass.store.database import Database
    from windlass.store.reading import KickoffStatus

LEASE = 60.0
DONE = Outcome(State.SUCCESS, output="done")
FAILED = Outcome(State.FAILED, reason=Reason.ERROR, error="it could not be done")
TASKS: list[dict[str, Any]] = [
    {"key": "aa", "name": "plan", "agent": "Guide"},
    {"key": "bb", "name": None, "agent": None},
]


def manifest(tasks: list[dict[str, Any]] | None = None) -> Manifest:
    value: dict[str, Any] = {
        "kind": "function",
        "name": "work",
        "inputs_schema": {},
        "tasks": TASKS if tasks is None else tasks,
    }
    return Manifest.from_json(value)


class Rows:
    """A deployment with two tasks, and what is kicked off of it."""

    def __init__(self, database: Database, deployment: Deployment) -> None:
        assert deployment.version is not None
        self.database = database
        self.store = KickoffStore(database)
        self.deployment = deployment
        self.version = deployment.version
        self.worker = new_id()

    @classmethod
    async def make(
        cls, database: Database, tasks: list[dict[str, Any]] | None = None, *, slug: str = "work", **options: Any
    ) -> Rows:
        """`options` are those of its project."""
        source: dict[str, Any] = {"kind": "function", **({"options": options} if options else {})}
        registered = await DeploymentStore(database).register(slug, digest="d", source=source, manifest=manifest(tasks))
        return cls(database, registered)

    async def beside(self, slug: str, **options: Any) -> Rows:
        """Another deployment on the same database, of the same worker."""
        made = await Rows.make(self.database, slug=slug, **options)
        made.worker = self.worker
        return made

    def new(self, key: str | None = None, **fields: Any) -> NewKickoff:
        made = NewKickoff(new_id(), self.deployment.id, self.version.id, None, "{}")
        reserved = {"idempotency_key": key, "request_digest": b"digest"} if key else {}
        return replace(made, **{**reserved, **fields})

    async def accept(self, count: int = 1, **fields: Any) -> list[UUID]:
        batch = [self.new(**fields) for _ in range(count)]
        assert await self.store.accept(batch) == Accepted({new.id for new in batch})
        return [new.id for new in batch]

    async def claim(self, slots: int = 1, worker: UUID | None = None, lease: float = LEASE) -> list[Claimed]:
        return await self.store.claim(worker or self.worker, slots, lease)

    async def started(self, **fields: Any) -> Claimed:
        """A kickoff that this worker has just claimed."""
        await self.accept(**fields)
        (claimed,) = await self.claim()
        return claimed

    async def claimed_ids(self, slots: int = 1) -> list[UUID]:
        return [claimed.id for claimed in await self.claim(slots)]

    async def silent(self) -> Claimed:
        """A kickoff whose worker has not renewed its lease in time."""
        claimed = await self.started()
        await self.begin(claimed)
        await self.end_leases()
        return claimed

    async def begin(self, claimed: Claimed) -> None:
        """Its process has started."""
        assert await self.store.write_reports(claimed.id, claimed.attempt, Batch(process_started=True))

    async def end_leases(self) -> None:
        await self.database.execute("UPDATE kickoffs SET lease_until = now() - interval '1 s' WHERE state = 'STARTED'")

    async def come_due(self) -> None:
        """As when time has passed."""
        await self.database.execute("UPDATE kickoffs SET run_at = now() WHERE run_at IS NOT NULL")
        await self.store.promote()

    async def status(self, kickoff: UUID) -> KickoffStatus:
        return await whole(self.store, kickoff)

    async def tasks(self, kickoff: UUID) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = loaded((await self.status(kickoff)).tasks)
        return found

    async def column(self, kickoff: UUID, name: str) -> Any:
        (row,) = await self.database.rows("SELECT * FROM kickoffs WHERE id = %(id)s", {"id": kickoff})
        return row[name]

    async def settle(self, claimed: Claimed, outcome: Outcome = DONE) -> State | None:
        return await self.store.settle(claimed.id, claimed.attempt, outcome, TokenUsage(), [])

    async def requeue(self, claimed: Claimed, max_losses: int = 3) -> State | None:
        return await self.store.requeue(
            claimed.id, claimed.attempt, Interruption("its process was lost", claimed.usage), max_losses=max_losses
        )

    async def write_reports(
        self,
        kickoff: UUID,
        attempt: int,
        events: Sequence[StoredEvent] = (),
        records: Sequence[TaskRecord] = (),
        warnings: Sequence[Warning_] = (),
        waiting_for: str | None = None,
    ) -> bool:
        batch = Batch(events, records, warnings, waiting_for=waiting_for)
        return await self.store.write_reports(kickoff, attempt, batch)

    async def write(self, claimed: Claimed, records: TaskRecords) -> bool:
        return await self.write_reports(claimed.id, claimed.attempt, [], records.take_changed())

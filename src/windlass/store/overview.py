"""Reads lists over the whole server: deployments with the load of their queues, kickoffs of all crews, workers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from windlass.kickoffs.boundary_parts import BoundaryPart
from windlass.kickoffs.ids import accepted_at
from windlass.store.database import Store, queries
from windlass.store.executions import ExecutionStore

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from windlass.store.database import Database

SQL = queries("overview")
NEWEST = 20
"""The kickoffs of a deployment whose warnings are shown with it."""
MOST_WARNINGS = 20
MOST_BOUNDARIES = 20
MOST_HOSTS = 3
LONGEST_PREVIEW = 300
"""Characters of the inputs of a kickoff in a list."""

DeploymentState = Literal["building", "online", "paused", "failed"]
DeploymentOrder = Literal["slug", "-slug", "created_at", "-created_at"]


@dataclass(frozen=True, slots=True)
class DeploymentRow:
    """A deployment and the load of its queue. `version` is the number of its current version.

    Its state is `building` until it has a version, or `failed` if its latest build failed before it had one.
    """

    id: UUID
    slug: str
    state: DeploymentState
    version: int | None
    concurrency: int | None
    weight: float
    created_at: datetime
    paused_at: datetime | None
    waiting: int
    running: int
    last_kickoff_at: datetime | None
    members_only: bool
    build: UUID | None
    build_state: str | None


@dataclass(frozen=True, slots=True)
class WarningRow:
    """A warning of the newest kickoffs of a deployment, or of its version. `kickoff` is the newest one that has it, or
    None for a warning of the version, and `kickoffs` how many have it.
    """

    code: str
    message: str
    kickoff: UUID | None
    kickoffs: int


@dataclass(frozen=True, slots=True)
class InputsRow:
    """The inputs of a kickoff. `preview` is the beginning of their JSON, None for large inputs."""

    id: UUID
    created_at: datetime
    preview: str | None


@dataclass(frozen=True, slots=True)
class DeploymentFilter:
    """Selects deployments. Each member narrows the selection when it is set.

    `after` is the slug or, with an order by time, the id after which the page begins. `sees` is the user to whose
    deployments the list is limited.
    """

    id: UUID | None = None
    slug: str | None = None
    search: str | None = None
    state: DeploymentState | None = None
    order: DeploymentOrder = "slug"
    after: str | None = None
    sees: UUID | None = None


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker, as it reported `seen_at`. `running` are its kickoffs, `zygote_memory` is in bytes."""

    id: UUID
    host: str
    pid: int
    slots: int
    started_at: datetime
    seen_at: datetime
    alive: bool
    version: str
    running: int
    zygotes: int
    zygote_memory: int
    boundary: list[BoundaryPart]


@dataclass(frozen=True, slots=True)
class WorkerBoundary:
    """What separates the runs of some workers that report the same. Empty for workers of a former release.

    `hosts` are the first of `all_hosts` machines.
    """

    parts: list[BoundaryPart]
    workers: int
    hosts: list[str]
    all_hosts: int


@dataclass(frozen=True, slots=True)
class QueueRow:
    """The load of a deployment's queue. `oldest` is the age of the oldest kickoff that can start, in seconds."""

    slug: str
    waiting: int
    delayed: int
    running: int
    oldest: float
    paused: bool


@dataclass(frozen=True, slots=True)
class WorkerTotals:
    workers: int
    slots: int


class OverviewStore(Store):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.executions = ExecutionStore(database)

    async def deployments(self, wanted: DeploymentFilter, *, limit: int) -> list[DeploymentRow]:
        values = {name: getattr(wanted, name) for name in DeploymentFilter.__slots__}
        rows = await self._database.rows(SQL["deployments"], {**values, "limit": limit}, soon=True)
        return [DeploymentRow(**row) for row in rows]

    async def states(self, search: str | None = None, *, sees: UUID | None = None) -> dict[DeploymentState, int]:
        """Returns how many deployments each state has, of those whose slug contains `search` and that the user `sees`
        sees. A state without any is missing.
        """
        values = {"search": search, "sees": sees}
        return {row["state"]: row["count"] for row in await self._database.rows(SQL["states"], values, soon=True)}

    async def warnings(self, deployment: UUID) -> list[WarningRow]:
        """Returns the warnings of the newest kickoffs of a deployment, one for each code."""
        values = {"deployment": deployment, "newest": NEWEST, "limit": MOST_WARNINGS}
        return [WarningRow(**row) for row in await self._database.rows(SQL["warnings"], values, soon=True)]

    async def newest_inputs(self, deployment: UUID, *, limit: int) -> list[InputsRow]:
        """Returns the inputs of the newest kickoffs of a deployment, the newest first."""
        values = {"deployment": deployment, "longest": LONGEST_PREVIEW, "limit": limit}
        return [InputsRow(**row) for row in await self._database.rows(SQL["newest_inputs"], values, soon=True)]

    async def inputs(self, kickoff: UUID, deployment: UUID) -> dict[str, Any] | None:
        """Returns the inputs of a kickoff, None if the deployment has no such kickoff."""
        values = {"kickoff": kickoff, "deployment": deployment}
        row = await self._database.row(SQL["inputs"], values, soon=True)
        return row["inputs"] if row else None

    async def queues(self, *, sees: UUID | None = None) -> list[QueueRow]:
        """Returns the queues of all deployments, or of those that the user sees, in the order of the slugs."""
        now = time.time()
        rows = await self._database.rows(SQL["queues"], {"sees": sees}, soon=True)
        return [QueueRow(oldest=_age(row.pop("first"), now), **row) for row in rows]

    async def worker_totals(self) -> WorkerTotals:
        (row,) = await self._database.rows(SQL["worker_totals"], soon=True)
        return WorkerTotals(row["workers"], row["slots"])

    async def workers(self, *, after: UUID | None = None, limit: int) -> list[WorkerRow]:
        """Returns workers in the order of their start."""
        rows = await self._database.rows(SQL["workers"], {"after": after, "limit": limit})
        return [WorkerRow(**{**row, "boundary": _parts(row["boundary"])}) for row in rows]

    async def boundaries(self, slug: str) -> list[WorkerBoundary]:
        """Returns what separates the runs of a deployment on the living workers that run its kickoffs."""
        rows = await self._database.rows(
            SQL["boundaries"], {"slug": slug, "hosts": MOST_HOSTS, "limit": MOST_BOUNDARIES}, soon=True
        )
        return [WorkerBoundary(_parts(row.pop("boundary")), **row) for row in rows]


def _parts(reported: list[dict[str, Any]]) -> list[BoundaryPart]:
    return [BoundaryPart.from_json(one) for one in reported]


def _age(kickoff: UUID | None, now: float) -> float:
    return 0.0 if kickoff is None else max(0.0, now - accepted_at(kickoff))

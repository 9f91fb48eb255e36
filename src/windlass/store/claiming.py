from __future__ import annotations

import functools
import os
import socket
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from windlass import __version__, log
from windlass.kickoffs.declared_settings import BadSetting
from windlass.kickoffs.events import to_json
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.manifest import Manifest
from windlass.kickoffs.outcome import TokenUsage
from windlass.kickoffs.states import TaskState
from windlass.kickoffs.tasks import TaskRecord
from windlass.store.database import Store, fetch, queries
from windlass.store.sealed_variables import SealedVariable, sealed_variables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windlass.kickoffs.boundary_parts import BoundaryPart
    from windlass.store.database import Row

logger = log.logger(__name__)

SQL = queries("claiming")
AT_ONCE = 1000
"""The most kickoffs of each deployment that one turn of `promote` makes ready, and the most keys that it checks."""
FIRST = (UUID(int=0), "")
REMEMBERED = timedelta(hours=1)
"""The row of a worker that does not report is kept so long."""
ENTRIES_AT_ONCE = 500
BYTES_AT_ONCE = 8 << 20
"""The most entries and bytes of a journal that are read at once. A whole journal may take hundreds of megabytes."""


@functools.cache
def host() -> str:
    """Returns the name of this machine, as rows show it."""
    return socket.gethostname()


@dataclass(frozen=True, slots=True)
class Claimed:
    """A kickoff that this worker now runs: its inputs as sent, its own limits, and its version's source and manifest.

    `digest` is the digest of the project's files in that version. `settings` and `variables` are those of the
    deployment at the time of the claim. `ran_for` is the number of seconds since its first
    start. `usage` and `model_calls` are the totals of its earlier attempts. `isolated` means that an earlier attempt
    lost its process. `asked` means that an earlier attempt has asked a person.
    """

    id: UUID
    attempt: int
    inputs: dict[str, Any]
    slug: str
    source: dict[str, Any]
    manifest: Manifest
    deployment_id: UUID = FIRST[0]
    digest: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    variables: tuple[SealedVariable, ...] = ()
    limits: Limits = field(default_factory=Limits)
    ran_for: float = 0.0
    isolated: bool = False
    retries: int = 0
    usage: TokenUsage = field(default_factory=TokenUsage)
    model_calls: int = 0
    concurrency_key: str | None = None
    stop_requested: bool = False
    asked: bool = False


@dataclass(frozen=True, slots=True)
class WorkerUsage:
    """What a worker uses: its running kickoffs, and the zygotes of its process with their memory in bytes."""

    running: int = 0
    zygotes: int = 0
    zygote_memory: int = 0


@dataclass(frozen=True, slots=True)
class JournalRow:
    """A step that an earlier attempt has finished.

    `record` is sealed. `output` is the part of the step that is stored in its task record, None when there is none.
    """

    number: int
    key: str
    record: str
    output: str | None


@dataclass(frozen=True, slots=True)
class Promoted:
    """The number of kickoffs that became ready, and the deployment and key after which the next turn continues."""

    count: int
    last: tuple[UUID, str]


def values_of(
    worker: UUID,
    slots: int,
    lease: float,
    *,
    only: Sequence[str] | None = None,
    excluded: Sequence[str] = (),
    ended: Sequence[UUID] = (),
    recent: Sequence[UUID] = (),
) -> dict[str, Any]:
    """Returns the values of the statement of `Claims.claim`, which describes them."""
    values: dict[str, Any] = {"worker": worker, "host": host(), "slots": slots, "lease": timedelta(seconds=lease)}
    values |= {"only": None if only is None else list(only), "excluded": list(excluded)}
    return values | {"ended": list(ended), "recent": list(recent)}


class Claims(Store):
    """Claims waiting kickoffs, and keeps their leases."""

    async def claim(
        self,
        worker: UUID,
        slots: int,
        lease: float,
        *,
        only: Sequence[str] | None = None,
        excluded: Sequence[str] = (),
        ended: Sequence[UUID] = (),
        recent: Sequence[UUID] = (),
    ) -> list[Claimed]:
        """Starts at most `slots` waiting kickoffs under this worker's lease, and writes their task records.

        Each deployment gets a fair share of the slots. Within a deployment, priority decides, then age. `only` are the
        slugs of the deployments, None for all, and `excluded` those that are left out. `ended` are kickoffs of this
        worker that have no process any more and are not settled yet: they don't count in the share of their deployment.
        `recent` are the deployments of its last starts, the latest one last.
        """
        values = values_of(worker, slots, lease, only=only, excluded=excluded, ended=ended, recent=recent)
        async with self._database.connection() as connection:
            rows = await fetch(connection, SQL["claim"], values)
            if large := [row["id"] for row in rows if row["content"] is None]:
                rows += await fetch(connection, SQL["claimed"], {"ids": large, "worker": worker})
        return sorted(_readable([row["content"] for row in rows if row["content"] is not None]), key=lambda one: one.id)

    async def renew(self, worker: UUID, kickoffs: Sequence[UUID], lease: float) -> dict[tuple[UUID, int], bool]:
        """Renews the leases of the kickoffs that this worker still holds.

        Returns (id, attempt) of each, with whether a stop is requested.
        """
        values = {"worker": worker, "kickoffs": list(kickoffs), "lease": timedelta(seconds=lease)}
        rows = await self._database.rows(SQL["renew"], values)
        return {(row["id"], row["attempt"]): row["stop_requested"] for row in rows}

    async def renew_unlocked(
        self, worker: UUID, kickoffs: Sequence[UUID], lease: float
    ) -> dict[tuple[UUID, int], bool | None]:
        """Renews leases as `renew` does, but waits for no lock of another statement.

        The value of a kickoff whose row is locked is None, and its lease is not renewed.
        """
        values = {"worker": worker, "kickoffs": list(kickoffs), "lease": timedelta(seconds=lease)}
        rows = await self._database.rows(SQL["renew_unlocked"], values)
        return {(row["id"], row["attempt"]): row["stop_requested"] if row["renewed"] else None for row in rows}

    async def promote(self, after: tuple[UUID, str] = FIRST, *, limit: int = AT_ONCE) -> Promoted:
        """Makes kickoffs ready whose time is reached, and the first waiting kickoff of each free concurrency key."""
        due = await self._database.row(SQL["promote_due"], {"limit": limit})
        deployment, key = after
        turn = await self._database.row(SQL["promote_keys"], {"deployment": deployment, "key": key, "limit": limit})
        assert due  # noqa: S101 - a count
        assert turn  # noqa: S101 - a count
        last = turn["last"]
        return Promoted(due["promoted"] + turn["promoted"], (UUID(last[0]), last[1]) if last else FIRST)

    async def earlier_records(self, kickoff: UUID) -> list[TaskRecord]:
        """Returns the task records as the earlier attempts have left them, without their outputs."""
        rows = await self._database.rows(SQL["earlier_records"], {"kickoff": kickoff})
        return [TaskRecord(**{**row, "state": TaskState(row["state"])}) for row in rows]

    async def journal(self, kickoff: UUID, after: int = 0) -> list[JournalRow]:
        """Returns the next steps that earlier attempts have finished, in order: those after the entry `after`.

        Returns only a part of a large journal, and no entries after the last one.
        """
        values = {"kickoff": kickoff, "after": after, "limit": ENTRIES_AT_ONCE, "most": BYTES_AT_ONCE}
        return [JournalRow(**row) for row in await self._database.rows(SQL["journal"], values)]


def _readable(rows: Sequence[Row]) -> Iterator[Claimed]:
    """Skips rows that this version can't parse, such as those of a newer server. Their leases end."""
    for row in rows:
        try:
            yield _claimed(row)
        except (BadSetting, KeyError, TypeError, ValueError) as error:
            logger.event("worker.run_failed", kickoff_id=row["id"], attempt=row["attempt"], exc=error)


def _claimed(row: Row) -> Claimed:
    return Claimed(
        **{
            **row,
            "id": UUID(row["id"]),
            "deployment_id": UUID(row["deployment_id"]),
            "manifest": Manifest.from_json(row["manifest"]),
            "variables": sealed_variables(row["variables"]),
            "limits": Limits.parse(row["limits"] or {}),
            "usage": TokenUsage(**row["usage"] or {}),
        }
    )


class WorkerStore(Store):
    """Records which workers are running, for display and for `waiting_for`.

    No decision that must be correct depends on these rows.
    """

    async def seen(
        self,
        worker: UUID,
        *,
        slots: int,
        lease: float,
        deployments: Sequence[str] | None = None,
        excluded: Sequence[str] = (),
        usage: WorkerUsage | None = None,
        boundary: Sequence[BoundaryPart] = (),
    ) -> None:
        """Records that the worker is alive, on this machine and in this process, until its lease ends.

        `deployments` are the slugs whose kickoffs it claims, None for all but those of `excluded`.
        `boundary` is what separates its runs.
        """
        values = {"host": host(), "pid": os.getpid(), "lease": timedelta(seconds=lease)}
        usage = usage or WorkerUsage()
        reported = {
            "slots": slots,
            "deployments": None if deployments is None else list(deployments),
            "excluded": list(excluded),
            "version": __version__,
            "running": usage.running,
            "zygotes": usage.zygotes,
            "zygote_memory": usage.zygote_memory,
            "boundary": to_json([one.to_json() for one in boundary]),
        }
        await self._database.execute(SQL["worker_seen"], {"id": worker, **reported, **values})

    async def leave(self, worker: UUID) -> None:
        await self._database.execute(SQL["worker_left"], {"id": worker})

    async def forget_silent(self) -> int:
        return await self._database.execute(SQL["forget_silent_workers"], {"silent_for": REMEMBERED})

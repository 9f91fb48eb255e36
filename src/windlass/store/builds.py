"""Builds: they turn the files of a project into a version of a deployment."""

# See docs/decisions/deployments.md#a-build-is-a-row-with-attempts

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from windlass.kickoffs.events import to_json
from windlass.kickoffs.ids import LAST_ID, new_id
from windlass.kickoffs.manifest import Manifest
from windlass.store.claiming import host
from windlass.store.database import Store, fetch, queries
from windlass.store.deployments import add_version, make_current
from windlass.store.sealed_variables import SealedVariable, sealed_variables
from windlass.store.side_jobs import NotYet, defer
from windlass.store.values import sanitized_json, sanitized_text
from windlass.store.variables import ReadValues, store_read

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from windlass.store.database import Connection

SQL = queries("builds")
JOB = "build"
"""The name of the side job that does a build."""
LANES = 2
"""How many builds of one person are done at once, at most. A worker has more slots (BUILDS_AT_ONCE)."""

BuildState = Literal["queued", "building", "ready", "failed", "superseded"]
Level = Literal["info", "warning", "error"]
Changes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Build:
    """A build of the deployment `slug`.

    `origin` has the type (folder, zip or git) and the place that the files came from. `snapshot` is the digest of the
    files, None before they are fetched from git. `changes` are those against the version that was current before.
    `version` is the number of the version that the build made. `host` is the machine that built. `created_by` is the
    name of a user. `builds_before` is how many builds are done before this one, None if it does not wait.
    """

    id: UUID
    deployment_id: UUID
    slug: str
    origin: dict[str, Any]
    snapshot: str | None
    state: BuildState
    error: str | None
    hint: str | None
    changes: Changes | None
    version: int | None
    host: str | None
    created_by: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    builds_before: int | None

    @property
    def has_ended(self) -> bool:
        return self.state not in {"queued", "building"}


@dataclass(frozen=True, slots=True)
class LogLine:
    seq: int
    at: datetime
    level: Level
    message: str


@dataclass(frozen=True, slots=True)
class NewLine:
    """A line of a build's log that is not stored yet. `at` is Unix time in seconds."""

    at: float
    level: Level
    message: str


@dataclass(frozen=True, slots=True)
class BuildTurn:
    """A build as this worker has begun it. `attempt` fences its writes: a later worker has a higher one.

    `lines` is the number of lines that the log has already. `settings` and `variables` are those of the deployment.
    `removed` is whether the deployment was removed.
    """

    id: UUID
    attempt: int
    deployment_id: UUID
    slug: str
    origin: dict[str, Any]
    snapshot: str | None
    settings: dict[str, Any]
    removed: bool
    lines: int
    variables: tuple[SealedVariable, ...]


@dataclass(frozen=True, slots=True)
class NewVersion:
    """What a build made. `source` is that of the version, with the digest of the files as `snapshot`."""

    digest: str
    source: dict[str, Any]
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class InUse:
    """What the machines of a server must keep: the snapshots and environments of versions, and of builds."""

    snapshots: frozenset[str]
    environments: frozenset[str]


class BuildStore(Store):
    async def start(
        self,
        deployment: UUID,
        origin: dict[str, Any],
        snapshot: str | None,
        by: UUID | None,
        connection: Connection | None = None,
    ) -> UUID:
        """Adds a build and defers its side job, in one transaction: that of `connection`, if it is given.

        People take turns. Of one person, LANES builds are done at once at most, so that other builds find a free slot.
        """
        if connection is None:
            async with self._database.transaction() as own:
                return await self.start(deployment, origin, snapshot, by, own)
        build = new_id()
        values = {"id": build, "deployment": deployment, "origin": to_json(origin), "snapshot": snapshot, "by": by}
        (row,) = await fetch(connection, SQL["add"], values)
        # builds that one person starts of one deployment are in the same lane, and so stay in order
        lock = f"{JOB} {by or 'of the server'} {deployment.int % LANES}"
        await defer(connection, JOB, lock=lock, priority=-row["turn"], build=str(build))
        return build

    async def get(self, build: UUID, connection: Connection | None = None) -> Build | None:
        """Reads with `connection` in its transaction, if it is given."""
        if connection is not None:
            rows = await fetch(connection, SQL["get"], {"id": build})
            return Build(**rows[0]) if rows else None
        row = await self._database.row(SQL["get"], {"id": build})
        return Build(**row) if row else None

    async def of_deployment(self, deployment: UUID, *, limit: int, before: UUID = LAST_ID) -> list[Build]:
        """Returns builds that were started before the build `before`, the newest first."""
        values = {"deployment": deployment, "before": before, "limit": limit}
        return [Build(**row) for row in await self._database.rows(SQL["of_deployment"], values)]

    async def log(self, build: UUID, *, after: int, limit: int) -> list[LogLine]:
        values = {"id": build, "after": after, "limit": limit}
        return [LogLine(**row) for row in await self._database.rows(SQL["log"], values)]

    async def remove_old_lines(self, age: timedelta, *, limit: int = 20) -> int:
        """Removes the logs of `limit` builds that ended so long ago. Returns the number of lines."""
        return await self._database.execute(SQL["remove_old_lines"], {"age": age, "limit": limit})

    async def passed_by_servers(self) -> None:
        """Waits until every server serves the versions of the builds that have ended, 2 s at most."""
        await self._database.passed_by_servers()

    async def in_use(self) -> InUse:
        rows = await self._database.rows(SQL["in_use"])
        found = [frozenset(row[name] for row in rows if row[name]) for name in ("snapshot", "environment")]
        return InUse(*found)

    async def begin(self, build: UUID) -> BuildTurn | None:
        """Begins a build, or takes it over from a worker that was lost. Returns None when there is nothing to do: the
        build has ended, or a newer one of the deployment replaces it. Raises NotYet while an earlier build of the
        deployment is done.
        """
        async with self._database.transaction() as connection:
            begun = await fetch(connection, SQL["begin"], {"id": build, "host": host()})
            if not begun and await fetch(connection, SQL["is_queued"], {"id": build}):
                raise NotYet
            if not begun or begun[0]["state"] != "building":
                return None
            (row,) = await fetch(connection, SQL["facts"], {"id": build})
        variables = sealed_variables(row.pop("variables"))
        return BuildTurn(id=build, attempt=begun[0]["attempt"], **{**row, "variables": variables})

    async def is_wanted(self, turn: BuildTurn) -> bool:
        """Returns False when the deployment was removed, or when another worker has taken over the build."""
        return bool(await self._database.rows(SQL["is_wanted"], {"id": turn.id, "attempt": turn.attempt}))

    async def set_snapshot(self, turn: BuildTurn, snapshot: str, origin: dict[str, Any]) -> None:
        values = {"id": turn.id, "attempt": turn.attempt, "snapshot": snapshot, "origin": to_json(origin)}
        await self._database.execute(SQL["set_snapshot"], values)

    async def add_lines(self, turn: BuildTurn, after: int, lines: Sequence[NewLine]) -> bool:
        """Adds lines to the log, after the line `after`. Returns False when another worker has taken over the build."""
        values = {
            "id": turn.id,
            "attempt": turn.attempt,
            "after": after,
            "times": [line.at for line in lines],
            "levels": [line.level for line in lines],
            "messages": [sanitized_text(line.message) for line in lines],
        }
        return bool(await self._database.rows(SQL["add_lines"], values))

    async def fail(self, turn: BuildTurn, error: str, hint: str) -> bool:
        """Returns False when another worker has taken over the build."""
        words = {"error": sanitized_text(error), "hint": sanitized_text(hint)}
        return bool(await self._database.rows(SQL["fail"], {"id": turn.id, "attempt": turn.attempt, **words}))

    async def publish(
        self,
        turn: BuildTurn,
        new: NewVersion,
        compare: Callable[[Manifest, Manifest], Changes],
        read: ReadValues | None = None,
    ) -> int | None:
        """Makes a version of what was built, and ends the build.

        The version becomes the current one, unless that is of a newer build. Returns the number of the version. Returns
        None when another worker has taken over the build, or when the deployment was removed. `compare` returns the
        changes from one manifest to another. `read` are the values of static variables that the build has read; they
        become the variables' values together with the version. Raises TooManyVariables for values that are too large.
        """
        manifest = Manifest.from_json(sanitized_json(new.manifest.to_json()))
        async with self._database.transaction() as connection:
            rows = await fetch(connection, SQL["lock"], {"id": turn.id, "attempt": turn.attempt})
            if not rows or rows[0]["removed"]:
                return None
            before = rows[0]["manifest"]
            changes = None if before is None else compare(Manifest.from_json(before), manifest)
            version = await add_version(
                connection, turn.deployment_id, new.digest, sanitized_json(new.source), manifest, changes
            )
            if not rows[0]["newer_is_current"]:
                await make_current(connection, turn.deployment_id, version)
                if read is not None:
                    await store_read(connection, turn.deployment_id, read)
            values = {"id": turn.id, "version": version, "changes": to_json(changes) if changes is not None else None}
            await connection.execute(SQL["finish"], values)
            found = await self.get(turn.id, connection)
        return found.version if found else None

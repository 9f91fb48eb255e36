from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windlass.kickoffs.events import to_json
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.manifest import Manifest
from windlass.store.audit import Change, record
from windlass.store.database import Connection, Row, Statement, Store, fetch, queries
from windlass.store.values import sanitized_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID


SQL = queries("deployments")
OPTION_DEFAULTS = {
    "concurrency": None,
    "weight": 1,
    "max_waiting": None,
    "concurrency_strategy": "enqueue",
    "profile": "documented",
}
"""The options of a version's source that are copied to its deployment: those of the queue, and the profile."""


MOST_ROLLBACKS = 100
"""The most versions that a deployment can go back."""


@dataclass(frozen=True, slots=True)
class Version:
    """An immutable state of a crew's project. `source` has the folder of its code, the interpreter and options."""

    id: UUID
    number: int
    digest: str
    source: dict[str, Any]
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Deployment:
    id: UUID
    slug: str
    profile: str
    version: Version | None
    settings: dict[str, Any] = field(default_factory=dict)
    """Its own settings, which replace the options of its project."""
    webhooks: dict[str, Any] = field(default_factory=dict)
    members: frozenset[UUID] | None = None
    """The users who see it beside the owners of the server. None: everybody."""


class DeploymentStore(Store):
    async def get(self, slug: str) -> Deployment | None:
        row = await self._database.row(SQL["by_slug"], {"slug": slug}, soon=True)
        return _deployment(row) if row else None

    async def all(self, *, limit: int = 1000) -> list[Row]:
        return await self._database.rows(SQL["all"], {"limit": limit})

    async def register(self, slug: str, *, digest: str, source: dict[str, Any], manifest: Manifest) -> Deployment:
        """Returns the deployment with this version as its current one.

        Adds the deployment if it does not exist. If the current version differs, adds the version, and sets the options
        of the deployment from the version's source.
        """
        manifest = Manifest.from_json(sanitized_json(manifest.to_json()))
        async with self._database.transaction() as connection:
            await connection.execute(SQL["lock_slug"], {"slug": slug})
            before = await _get(connection, slug)
            found = before or await _add(connection, slug)
            changes = not _same(found.version, digest, source, manifest)
            if changes:
                version = await add_version(connection, found.id, digest, source, manifest)
                await make_current(connection, found.id, version)
            registered = await _get(connection, slug)
        if before and changes:
            await self._database.passed_by_servers()
        assert registered is not None  # noqa: S101 - written in this transaction
        return registered

    async def pause(self, slug: str, change: Change | None = None) -> bool:
        """Stops claims of its kickoffs. Running kickoffs go on. Returns False for an unknown deployment."""
        return await self._write(SQL["pause"], {"slug": slug}, change)

    async def resume(self, slug: str, change: Change | None = None) -> bool:
        """Returns False for an unknown deployment."""
        return await self._write(SQL["resume"], {"slug": slug}, change)

    async def change_settings(
        self, slug: str, merge: Callable[[dict[str, Any]], dict[str, Any]], change: Change
    ) -> dict[str, Any] | None:
        """Replaces the own settings by what `merge` returns for them, and returns these.

        Two calls at once happen one after the other, so no change is lost. Returns None for no such deployment.
        """
        async with self._database.change() as connection:
            rows = await fetch(connection, SQL["lock_settings"], {"slug": slug})
            if not rows:
                return None
            deployment, settings = rows[0]["id"], merge(rows[0]["settings"])
            await connection.execute(SQL["set_settings"], {"deployment": deployment, "settings": to_json(settings)})
            await apply_options(connection, deployment)
            await record(connection, change)
        return settings

    async def manifest(self, version: UUID) -> Manifest | None:
        row = await self._database.row(SQL["manifest"], {"version": version}, soon=True)
        return Manifest.from_json(row["manifest"]) if row else None

    async def _write(self, statement: Statement, values: Row, change: Change | None) -> bool:
        """Executes the statement, and records the change. Returns False, and records nothing, if no row matches."""
        async with self._database.change() as connection:
            if not await fetch(connection, statement, values):
                return False
            if change:
                await record(connection, change)
        return True


async def _get(connection: Connection, slug: str) -> Deployment | None:
    rows = await fetch(connection, SQL["by_slug"], {"slug": slug})
    return _deployment(rows[0]) if rows else None


async def _add(connection: Connection, slug: str) -> Deployment:
    deployment = Deployment(new_id(), slug, "documented", None)
    await connection.execute(SQL["add"], {"id": deployment.id, "slug": slug})
    return deployment


async def add_version(
    connection: Connection,
    deployment: UUID,
    digest: str,
    source: dict[str, Any],
    manifest: Manifest,
    changes: dict[str, Any] | None = None,
) -> UUID:
    """Returns the id of the new version. The caller holds a lock of the deployment."""
    version = new_id()
    values = {
        "id": version,
        "deployment": deployment,
        "digest": digest,
        "source": to_json(source),
        "manifest": to_json(manifest.to_json()),
        "snapshot": source.get("snapshot"),
        "changes": to_json(changes) if changes is not None else None,
    }
    await connection.execute(SQL["add_version"], values)
    return version


async def make_current(connection: Connection, deployment: UUID, version: UUID) -> None:
    """Makes a version of the deployment the current one, and sets the options of its queue. A rollback ends this."""
    await connection.execute(SQL["note_current"], {"version": version, "deployment": deployment})
    await connection.execute(SQL["forget_current"], {"deployment": deployment, "most": MOST_ROLLBACKS})
    await show_current(connection, deployment, version)


async def show_current(connection: Connection, deployment: UUID, version: UUID) -> None:
    """Makes a version of the deployment the current one, without a note for a rollback."""
    await connection.execute(SQL["make_current"], {"version": version, "deployment": deployment})
    await apply_options(connection, deployment)


async def apply_options(connection: Connection, deployment: UUID) -> None:
    """Sets the options of the deployment's queue: from its settings, else from the source of its current version."""
    (row,) = await fetch(connection, SQL["given_options"], {"deployment": deployment})
    given = {**(row["options"] or {}), **{name: value for name, value in row["settings"].items() if value is not None}}
    options = {name: given.get(name, default) for name, default in OPTION_DEFAULTS.items()}
    await connection.execute(SQL["set_options"], {"deployment": deployment, **options})


def _same(version: Version | None, digest: str, source: dict[str, Any], manifest: Manifest) -> bool:
    return version is not None and (version.digest, version.source, version.manifest) == (digest, source, manifest)


def _deployment(row: Row) -> Deployment:
    version = (
        Version(row["version_id"], row["number"], row["digest"], row["source"], Manifest.from_json(row["manifest"]))
        if row["version_id"]
        else None
    )
    members = None if row["members"] is None else frozenset(row["members"])
    return Deployment(row["id"], row["slug"], row["profile"], version, row["settings"], row["webhooks"], members)

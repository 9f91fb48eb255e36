"""Adds deployments, moves them between their versions, and removes them. Changes of one deployment are one by one."""

# See docs/decisions/deployments.md#versions-are-made-under-the-lock-of-the-deployment
# See docs/decisions/deployments.md#a-rollback-goes-through-the-versions-that-were-current

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from windlass.errors import WindlassError
from windlass.kickoffs.ids import new_id
from windlass.store.audit import Change, record
from windlass.store.database import Connection, Database, Row, Store, fetch, queries
from windlass.store.deployments import make_current, show_current
from windlass.store.side_jobs import defer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime
    from uuid import UUID

SQL = queries("managing")
REMOVAL = "remove_deployment"
"""The name of the side job that deletes the rows of a removed deployment."""
LARGEST_NUMBER = 2**31 - 1

Begun = TypeVar("Begun")
Begin = Callable[[Connection, "UUID"], Awaitable[Begun]]
"""Continues the transaction of a change of the deployment with this id."""


class NoSuchDeployment(WindlassError):  # noqa: N818 - describes the deployment
    def __init__(self, slug: str) -> None:
        super().__init__(
            f"There is no deployment {slug[:100]!r}.", "`windlass deployments list` and GET /deployments list them."
        )


class NameTaken(WindlassError):  # noqa: N818 - describes the name
    def __init__(self, slug: str) -> None:
        super().__init__(
            f"There is a deployment {slug!r} already.",
            "Start a build of it (`windlass deploy` without --new), or choose another name.",
        )
        self.slug = slug


class NoSuchVersion(WindlassError):  # noqa: N818 - describes the version
    pass


class NoEarlierVersion(WindlassError):  # noqa: N818 - describes the version
    pass


class AnotherVersion(WindlassError):  # noqa: N818 - describes the version
    """Reports that the current version is not the expected one: somebody else has changed it."""


class KickoffsOpen(WindlassError):  # noqa: N818 - describes the kickoffs
    pass


class BuildOpen(WindlassError):  # noqa: N818 - describes the build
    def __init__(self, slug: str, build: UUID) -> None:
        super().__init__(
            f"A build of {slug} has not ended yet.",
            f"Redeploy when it has. Follow it with: windlass deployments logs {slug} --follow",
        )
        self.build = build


@dataclass(frozen=True, slots=True)
class CurrentFiles:
    """The files of the current version: the version's number, their digest, and the `origin` of its build."""

    number: int
    snapshot: str
    origin: dict[str, Any]


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version. `source` and `manifest` are None in lists. `build` is the build that made it."""

    id: UUID
    number: int
    created_at: datetime
    build: UUID | None
    current: bool
    changes: dict[str, Any] | None
    source: dict[str, Any] | None
    manifest: dict[str, Any] | None


class ManagingStore(Store):
    async def add(self, slug: str, change: Change, begin: Begin[Begun], *, members_only: bool = False) -> Begun:
        """Adds a deployment, and continues with `begin` in the same transaction. Of two with the same slug at once, one
        is added. Raises NameTaken for the other.

        The user who adds it becomes its owner. With `members_only`, only members see it; without a user, everybody.
        """
        owner = change.by.user_id
        values = {"id": new_id(), "slug": slug, "members_only": members_only and owner is not None}
        async with self._database.transaction() as connection:
            rows = await fetch(connection, SQL["add"], values)
            if not rows:
                raise NameTaken(slug)
            if owner is not None:
                await connection.execute(SQL["add_owner"], {"deployment": rows[0]["id"], "owner": owner})
            begun = await begin(connection, rows[0]["id"])
            await record(connection, change)
        return begun

    async def begin_build(self, slug: str, change: Change, begin: Begin[Begun]) -> Begun:
        """Continues with `begin`, which starts a build, in the transaction. Raises NoSuchDeployment."""
        async with locked(self._database, slug) as (connection, row):
            await connection.execute(SQL["set_deployed"], {"deployment": row["id"]})
            begun = await begin(connection, row["id"])
            await record(connection, change)
        return begun

    async def current_files(self, slug: str, connection: Connection, deployment: UUID) -> CurrentFiles:
        """Returns the files of the current version. The caller holds the lock of the deployment.

        Raises NoSuchVersion if no deployed version is current, and BuildOpen while a build has not ended: a build of
        the current files after it would replace what it makes.
        """
        (row,) = await fetch(connection, SQL["current_files"], {"deployment": deployment})
        if row["open_build"]:
            raise BuildOpen(slug, row["open_build"])
        if row["snapshot"] is None:
            in_place = "`windlass dev` serves it from its folder, and reads secrets each time it loads the project."
            hint = in_place if row["number"] else "Deploy it with: windlass deploy PATH"
            raise NoSuchVersion(f"{slug} has no deployed version.", hint)
        return CurrentFiles(row["number"], row["snapshot"], row["origin"] or {"type": "zip"})

    async def versions(self, deployment: UUID, *, below: int | None, limit: int) -> list[VersionRow]:
        """Returns versions, the newest first, with numbers below `below`."""
        last = LARGEST_NUMBER if below is None else below - 1
        values = {"deployment": deployment, "first": 1, "last": last, "limit": limit, "whole": False}
        return [VersionRow(**row) for row in await self._database.rows(SQL["versions"], values)]

    async def version(self, deployment: UUID, number: int) -> VersionRow:
        """Raises NoSuchVersion."""
        values = {"deployment": deployment, "first": number, "last": number, "limit": 1, "whole": True}
        row = await self._database.row(SQL["versions"], values)
        if row is None:
            raise NoSuchVersion(f"There is no version {number}.", "GET .../versions lists the versions.")
        return VersionRow(**row)

    async def promote(self, slug: str, number: int, current: int | None, change: Change) -> int:
        """Makes the version the current one, and returns its number. Changes nothing if it is the current one.

        Raises NoSuchDeployment, NoSuchVersion, and AnotherVersion if `current` is given and is not the current version.
        """
        async with locked(self._database, slug) as (connection, row):
            _check_current(row, current)
            found = await fetch(connection, SQL["version"], {"deployment": row["id"], "number": number})
            if not found:
                raise _no_such_version(slug, number)
            if found[0]["id"] != row["current_version"]:
                await make_current(connection, row["id"], found[0]["id"])
                await record(connection, change)
        return number

    async def version_before(self, deployment: UUID) -> int | None:
        """Returns the number of the version that a rollback makes the current one, None without one."""
        row = await self._database.row(SQL["version_before"], {"deployment": deployment})
        return int(row["number"]) if row else None

    async def roll_back(self, slug: str, current: int | None, change: Change) -> int:
        """Makes the previous version current, and returns its number.

        Raises NoSuchDeployment, NoEarlierVersion, and AnotherVersion as `promote` does.
        """
        async with locked(self._database, slug) as (connection, row):
            _check_current(row, current)
            deployment = row["id"]
            before = await fetch(connection, SQL["version_before"], {"deployment": deployment})
            if not before:
                raise NoEarlierVersion(f"No version of {slug} was current before.", _list_of_versions(slug))
            await connection.execute(SQL["remove_last_current"], {"deployment": deployment})
            await show_current(connection, deployment, before[0]["id"])
            await record(connection, change)
        return int(before[0]["number"])

    async def remove(self, slug: str, change: Change, *, stop: bool) -> UUID:
        """Removes the deployment for all clients, and defers the side job that deletes its rows. Returns its id.

        Raises NoSuchDeployment, also for the second of two removals at once. Raises KickoffsOpen without `stop`.
        """
        async with locked(self._database, slug) as (connection, row):
            deployment: UUID = row["id"]
            (found,) = await fetch(connection, SQL["open_kickoffs"], {"deployment": deployment})
            if found["count"] and not stop:
                raise KickoffsOpen(
                    f"The deployment {slug} has open kickoffs: {found['count']}.",
                    f"Stop them with the removal: ?stop=true, or `windlass deployments remove {slug} --stop`.",
                )
            await connection.execute(SQL["remove"], {"deployment": deployment, "slug": slug})
            await record(connection, change)
            await defer(connection, REMOVAL, deployment=str(deployment))
        return deployment

    async def open_kickoffs(self, deployment: UUID) -> int:
        (row,) = await self._database.rows(SQL["open_kickoffs"], {"deployment": deployment})
        return int(row["count"])

    async def delete_rows(self, deployment: UUID) -> None:
        """Deletes the rows of a removed deployment but those of kickoffs. May be repeated."""
        values = {"deployment": deployment}
        async with self._database.transaction(patient=True) as connection:
            if not await fetch(connection, SQL["forget_version"], values):
                return
            await connection.execute(SQL["remove_from_credentials"], values)
            await connection.execute(SQL["remove_rows_of_builds"], values)
            await connection.execute(SQL["remove_builds"], values)
            await connection.execute(SQL["remove_current_versions"], values)
            await connection.execute(SQL["remove_versions"], values)
            await connection.execute(SQL["remove_tokens"], values)
            await connection.execute(SQL["remove_others"], values)


@asynccontextmanager
async def locked(database: Database, slug: str) -> AsyncIterator[tuple[Connection, Row]]:
    """Provides a change that has locked the deployment, and its row. Raises NoSuchDeployment."""
    async with database.change() as connection:
        rows = await fetch(connection, SQL["lock"], {"slug": slug})
        if not rows:
            raise NoSuchDeployment(slug)
        yield connection, rows[0]


def _check_current(row: Row, expected: int | None) -> None:
    if expected is not None and expected != row["number"]:
        raise AnotherVersion(
            f"The current version is {row['number']}, not {expected}: it was changed meanwhile.", "Look again."
        )


def _no_such_version(slug: str, number: int) -> NoSuchVersion:
    return NoSuchVersion(f"There is no version {number} of {slug}.", _list_of_versions(slug))


def _list_of_versions(slug: str) -> str:
    return f"`windlass deployments versions {slug}` lists the versions."

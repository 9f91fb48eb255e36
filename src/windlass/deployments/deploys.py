"""Deploys projects: accepts their files, starts builds, and moves deployments between their versions."""

# See docs/decisions/deployments.md#a-redeploy-waits-for-no-build

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from windlass import log
from windlass.deployments.members import MEMBERS
from windlass.deployments.registration import slug_of
from windlass.errors import WindlassError
from windlass.kickoffs.ids import LAST_ID
from windlass.projects.git import check_origin
from windlass.store.audit import Change
from windlass.store.managing import NameTaken

if TYPE_CHECKING:
    from collections.abc import AsyncIterable
    from uuid import UUID

    from windlass.deployments.builds import Builds, LogPage
    from windlass.deployments.members import VisibleTo
    from windlass.deployments.sources import Sources
    from windlass.store.audit import Actor
    from windlass.store.builds import Build
    from windlass.store.database import Connection
    from windlass.store.deployments import DeploymentStore
    from windlass.store.managing import ManagingStore, VersionRow

MOST_NAMED = 20
"""Files that a build names as left out of its source."""
LETTER = re.compile("[A-Za-z0-9]")
REMOVED = re.compile(r"removed-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

logger = log.logger(__name__)


class BadName(WindlassError):  # noqa: N818 - describes the name
    pass


class NoSuchBuild(WindlassError):  # noqa: N818 - describes the build
    pass


@dataclass(frozen=True, slots=True)
class Source:
    """Where the files of a build come from. `snapshot` is the digest of stored files, None for a git repository."""

    origin: dict[str, Any]
    snapshot: str | None = None


class Deploys:
    def __init__(
        self,
        store: DeploymentStore,
        managing: ManagingStore,
        builds: Builds,
        sources: Sources,
        *,
        allow_local_git: bool,
        visible_to: VisibleTo = MEMBERS,
    ) -> None:
        self._store = store
        self._managing = managing
        self._builds = builds
        self._sources = sources
        self._allow_local_git = allow_local_git
        self._members_only = visible_to == MEMBERS

    async def slug_of_new(self, name: str) -> str:
        """Returns the slug of a new deployment with this name. Raises BadName, and NameTaken."""
        if not LETTER.search(name):
            raise BadName("The name of a deployment needs a letter from a to z, or a digit.", "Choose another name.")
        slug = slug_of(name)
        if REMOVED.fullmatch(slug):  # the slug that a removed deployment gets, so it could not be removed
            raise BadName("The name of a deployment must not be `removed-` and an id.", "Choose another name.")
        if await self._store.get(slug):
            raise NameTaken(slug)
        return slug

    async def source_of_zip(self, chunks: AsyncIterable[bytes], origin: dict[str, Any]) -> Source:
        """Checks and stores the files of an uploaded zip. Raises ProjectError, and what `chunks` raises."""
        snapshot = await self._sources.receive(chunks)
        facts = {"files": snapshot.files, "size": snapshot.size, "left_out": list(snapshot.left_out[:MOST_NAMED])}
        return Source({**origin, **{name: value for name, value in facts.items() if value}}, snapshot.digest)

    def source_of_git(self, url: str, ref: str | None, subfolder: str | None, origin: dict[str, Any]) -> Source:
        """Checks the address of a repository. The build fetches it. Raises ProjectError."""
        check_origin(url, ref, subfolder, allow_local=self._allow_local_git)
        place = {"type": "git", "url": url, "ref": ref, "subfolder": subfolder}
        return Source({**origin, **{name: value for name, value in place.items() if value}})

    async def create(self, slug: str, source: Source | None, by: Actor) -> Build | None:
        """Adds a deployment, with its first build if a source is given. Of two at once with one slug, one is added. The
        user who adds it is its owner.

        Raises NameTaken.
        """
        change = Change(by, "deployment.create", slug, {"origin": source.origin} if source else {})
        begin = partial(self._start, source, by)
        build = await self._managing.add(slug, change, begin, members_only=self._members_only)
        logger.event("deployment.created", deployment=slug)
        return build

    async def build(self, slug: str, source: Source, by: Actor) -> Build:
        """Starts a build of a deployment. Of several at once, a build that waits is replaced by the newest one.

        Raises NoSuchDeployment.
        """
        change = Change(by, "deployment.deploy", slug, {"origin": source.origin})
        build = await self._managing.begin_build(slug, change, partial(self._start, source, by))
        assert build is not None  # noqa: S101 - there is a source
        return build

    async def redeploy(self, slug: str, by: Actor) -> Build:
        """Starts a build of the files of the current version. It reads the values of static variables again.

        Raises NoSuchDeployment, NoSuchVersion without a deployed version, and BuildOpen while a build has not ended.
        """
        change = Change(by, "deployment.redeploy", slug)
        return await self._managing.begin_build(slug, change, partial(self._start_again, slug, by))

    async def builds_of(self, deployment: UUID, *, before: UUID | None, limit: int) -> list[Build]:
        """Returns builds, the newest first."""
        return await self._builds.of_deployment(deployment, limit=limit, before=before or LAST_ID)

    async def show_build(self, build: UUID | None) -> Build:
        """Raises NoSuchBuild, also for a build of a removed deployment."""
        found = await self._builds.get(build) if build else None
        if found is None or _is_removed(found):
            raise _no_such_build()
        return found

    async def log(self, build: UUID | None, *, after: int, limit: int, wait: float) -> LogPage:
        """Returns the next lines of a build's log, as `Builds.log` does. Raises NoSuchBuild."""
        found = await self._builds.log(build, after=after, limit=limit, wait=wait) if build else None
        if found is None or _is_removed(found.build):
            raise _no_such_build()
        return found

    async def versions(self, deployment: UUID, *, below: int | None, limit: int) -> list[VersionRow]:
        return await self._managing.versions(deployment, below=below, limit=limit)

    async def version(self, deployment: UUID, number: int) -> VersionRow:
        return await self._managing.version(deployment, number)

    async def promote(self, slug: str, number: int, current: int | None, by: Actor) -> int:
        """Makes a version the current one, as ManagingStore.promote does. New kickoffs run on it at once."""
        change = Change(by, "deployment.promote", slug, {"version": number})
        promoted = await self._managing.promote(slug, number, current, change)
        logger.event("deployment.promoted", deployment=slug, version=promoted)
        return promoted

    async def roll_back(self, slug: str, current: int | None, by: Actor) -> int:
        """Makes the previous version current, as ManagingStore.roll_back does."""
        number = await self._managing.roll_back(slug, current, Change(by, "deployment.rollback", slug))
        logger.event("deployment.promoted", deployment=slug, version=number)
        return number

    async def version_before(self, deployment: UUID) -> int | None:
        """Returns the number of the version that a rollback makes the current one, None without one."""
        return await self._managing.version_before(deployment)

    async def remove(self, slug: str, by: Actor, *, stop: bool) -> None:
        """Removes a deployment at once for all clients. A side job deletes its data."""
        removed = await self._managing.remove(slug, Change(by, "deployment.remove", slug), stop=stop)
        logger.event("deployment.removed", deployment=slug, deployment_id=removed)

    async def _start(self, source: Source | None, by: Actor, connection: Connection, deployment: UUID) -> Build | None:
        if source is None:
            return None
        return await self._builds.start(deployment, source.origin, source.snapshot, by.user_id, connection)

    async def _start_again(self, slug: str, by: Actor, connection: Connection, deployment: UUID) -> Build:
        files = await self._managing.current_files(slug, connection, deployment)
        origin = {**files.origin, "message": f"redeploy of version {files.number}"}
        return await self._builds.start(deployment, origin, files.snapshot, by.user_id, connection)


def _is_removed(build: Build) -> bool:
    return build.slug == f"removed-{build.deployment_id}"


def _no_such_build() -> NoSuchBuild:
    return NoSuchBuild("There is no such build.", "GET /deployments/{slug}/builds lists the builds of a deployment.")

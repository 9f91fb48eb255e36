"""Starts builds of deployments, and reads them and their logs. `windlass.deployments.building` does the builds."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass import log
from windlass.kickoffs.ids import LAST_ID
from windlass.lifecycle.notices import Notices, notified
from windlass.store.listener import BUILDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.store.builds import Build, BuildStore, LogLine
    from windlass.store.database import Connection
    from windlass.store.listener import Listener

LONGEST_WAIT = 30.0
"""Seconds that a request may wait for the next line of a log."""

logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class LogPage:
    """The next lines of a build's log, and the build. `next_after` is the line after which the next page begins."""

    lines: Sequence[LogLine]
    build: Build
    next_after: int


class Builds:
    def __init__(self, store: BuildStore, listener: Listener) -> None:
        self._store = store
        self._lines = Notices(listener, BUILDS)
        self._stopping = False

    def stop(self) -> None:
        """Ends the waits of `log`, which return the lines that there are. Later calls do not wait."""
        self._stopping = True
        self._lines.resolve_all()

    async def start(
        self,
        deployment: UUID,
        origin: dict[str, Any],
        snapshot: str | None,
        by: UUID | None,
        connection: Connection | None = None,
    ) -> Build:
        """Starts a build of the deployment. A worker does it, and its version becomes the current one when it is ready.

        `origin` has the `type` (folder, zip or git) and the place that the files come from: for git `url`, `ref` and
        `subfolder`. `snapshot` is the digest of the files in the store; None for files that the worker fetches from
        git. `by` is the user. With `connection` the build is part of its transaction.
        """
        build = await self._store.start(deployment, origin, snapshot, by, connection)
        found = await self._store.get(build, connection)
        assert found is not None  # noqa: S101 - just written
        logger.event("build.queued", build=build, deployment=found.slug)
        return found

    async def get(self, build: UUID) -> Build | None:
        return await self._store.get(build)

    async def of_deployment(self, deployment: UUID, *, limit: int, before: UUID = LAST_ID) -> list[Build]:
        """Returns builds that were started before the build `before`, the newest first."""
        return await self._store.of_deployment(deployment, limit=limit, before=before)

    async def log(self, build: UUID, *, after: int = 0, limit: int = 1000, wait: float = 0.0) -> LogPage | None:
        """Returns the lines after the line `after`, or None for no such build.

        When there is none, waits at most `wait` seconds for a line or for the end of the build.
        """
        clock = asyncio.get_running_loop()
        deadline = clock.time() + min(wait, LONGEST_WAIT)
        while True:
            with self._lines.of(build) as notice:
                found = await self._store.get(build)  # before the lines, which are complete when it has ended
                if found is None:
                    return None
                lines = await self._store.log(build, after=after, limit=limit)
                ready = lines or found.has_ended or self._stopping
                if ready or not await notified(notice, deadline - clock.time()):
                    if found.has_ended and wait:  # who follows the build uses its version next
                        await self._store.passed_by_servers()
                    return LogPage(lines, found, lines[-1].seq if lines else after)

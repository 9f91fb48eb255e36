"""Side jobs that delete the data of removed deployments and users."""

# See docs/decisions/deployments.md#a-removed-deployment-is-renamed-first

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

from windlass import log
from windlass.access.tokens import NoSuchUser
from windlass.lifecycle.deletion import BETWEEN_LOOKS, KNOWN_WITHIN, Deletions, KickoffsStillOpen
from windlass.store.audit import REMOVAL
from windlass.store.ending import StopFilter

if TYPE_CHECKING:
    from windlass.lifecycle.accept import Stops
    from windlass.lifecycle.deletion import UserDeletion
    from windlass.store.managing import ManagingStore
    from windlass.store.retention import RetentionStore

STOPPED_WITHIN = 60.0
"""Seconds in which the kickoffs of a removed deployment end after their stop, unless their worker is lost."""

logger = log.logger(__name__)


class Removals:
    """Deletes the data of removed deployments, and of users. Each method is a side job, and may be repeated."""

    def __init__(self, retention: RetentionStore, stops: Stops, managing: ManagingStore, users: UserDeletion) -> None:
        self._deletions = Deletions(retention)
        self._retention = retention
        self._stops = stops
        self._managing = managing
        self._users = users

    async def remove_deployment(self, deployment: str) -> None:
        """Stops the open kickoffs, waits for their end, and deletes all rows of the deployment.

        Raises KickoffsStillOpen after a minute: the side job is then tried again.
        """
        removed = UUID(deployment)
        await asyncio.sleep(KNOWN_WITHIN)  # every server refuses new kickoffs from here on
        await self._stop(removed)
        while (found := await self._retention.ended(removed, 0)).kickoffs:
            await self._deletions.delete(found.kickoffs, REMOVAL)
        await self._managing.delete_rows(removed)
        logger.event("deployment.deleted", deployment_id=deployment)

    async def remove_user(self, user: str) -> None:
        """Deletes a disabled user with all kickoffs and tokens. Does nothing for a user who was enabled again."""
        try:
            found = await self._users.find(user)
        except NoSuchUser:
            return
        if found.disabled_at:
            await self._users.delete(user, stop=True, data_only=False, by=REMOVAL)

    async def _stop(self, deployment: UUID) -> None:
        clock = asyncio.get_running_loop()
        deadline = clock.time() + STOPPED_WITHIN
        await self._stops.stop_all(StopFilter(deployment), REMOVAL)
        while count := await self._managing.open_kickoffs(deployment):
            if clock.time() > deadline:
                raise KickoffsStillOpen(f"{count} kickoffs of the removed deployment have not ended.", "")
            await asyncio.sleep(BETWEEN_LOOKS)
            await self._stops.stop_all(StopFilter(deployment), REMOVAL)

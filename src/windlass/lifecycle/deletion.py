"""Deletes one kickoff or one user, with all their rows in the database. A deletion can't be undone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from windlass import log
from windlass.errors import WindlassError
from windlass.store.kickoffs import StopFilter
from windlass.store.retention import DETAILS, FIRST

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.access.tokens import Tokens
    from windlass.lifecycle.stopping import Stops
    from windlass.store.deployments import DeploymentStore
    from windlass.store.retention import Details, RetentionStore
    from windlass.store.tokens import UserRow

PAUSE = 0.01
"""Seconds between two transactions, in which other statements can run."""
KNOWN_WITHIN = 1.0
"""Seconds after which every server refuses the tokens of a disabled user."""
BETWEEN_LOOKS = 0.2
"""Seconds between two checks whether the stopped kickoffs have ended."""

logger = log.logger(__name__)


class KickoffsStillOpen(WindlassError):  # noqa: N818 - describes the kickoffs
    pass


class Deletions:
    """Deletes kickoffs that have ended, in bounded transactions. An interrupted deletion can be repeated."""

    def __init__(self, store: RetentionStore) -> None:
        self._store = store

    async def delete(self, kickoffs: Sequence[UUID]) -> int:
        """Returns the number of deleted kickoffs. Deletes the rows of the kickoffs themselves last."""
        for table in DETAILS:
            await self._drop(table, kickoffs)
        deleted = await self._store.delete_kickoffs(kickoffs)
        for kickoff in deleted:
            logger.event("kickoff.deleted", kickoff_id=kickoff)
        return len(deleted)

    async def _drop(self, table: Details, kickoffs: Sequence[UUID]) -> None:
        more = True
        while more:
            more = await self._store.drop_rows(table, kickoffs) == self._store.rows_at_once
            await asyncio.sleep(PAUSE)

    async def delete_all_of(self, user: UUID) -> int:
        """Deletes the ended kickoffs of the user, on every deployment. Returns their number."""
        deleted, after = 0, FIRST
        while (page := await self._store.kickoffs_of(user, after)).last:
            for start in range(0, len(page.ended), self._store.at_once):
                deleted += await self.delete(page.ended[start : start + self._store.at_once])
                await asyncio.sleep(PAUSE)
            after = page.last
        return deleted

    async def open_kickoffs(self, user: UUID) -> int:
        return await self._store.open_kickoffs(user)

    async def delete_user(self, user: UUID) -> None:
        await self._store.delete_user(user)
        logger.event("user.deleted", user_id=user)


class UserDeletion:
    """Deletes a user with all kickoffs and tokens. `patience` is in seconds: stopped kickoffs must end within it."""

    def __init__(
        self, deletions: Deletions, tokens: Tokens, stops: Stops, deployments: DeploymentStore, *, patience: float
    ) -> None:
        self._deletions = deletions
        self._tokens = tokens
        self._stops = stops
        self._deployments = deployments
        self._patience = patience

    async def delete(self, name: str, *, stop: bool, data_only: bool) -> int:
        """Returns the number of deleted kickoffs. With `data_only`, keeps the user and the tokens.

        Raises NoSuchUser. Raises KickoffsStillOpen if a kickoff is open without `stop`, or if a stopped kickoff does
        not end in time.
        """
        user = await self._tokens.user(name)
        if not stop and (count := await self._deletions.open_kickoffs(user.id)):
            raise _still_open(user, count, "Stop them first, or give --stop.")
        if not data_only:
            # No new kickoff of the user is accepted from here on.
            await self._tokens.disable_user(name)
            await asyncio.sleep(KNOWN_WITHIN)
        if stop:
            await self._stop(user)
        deleted = await self._deletions.delete_all_of(user.id)
        if not data_only:
            await self._deletions.delete_user(user.id)
        return deleted

    async def _stop(self, user: UserRow) -> None:
        for row in await self._deployments.all():
            await self._stops.stop_all(StopFilter(row["id"], owner=user.id))
        clock = asyncio.get_running_loop()
        deadline = clock.time() + self._patience
        while count := await self._deletions.open_kickoffs(user.id):
            if clock.time() > deadline:
                raise _still_open(
                    user, count, "They are being stopped. After a worker has ended them, repeat the command."
                )
            await asyncio.sleep(BETWEEN_LOOKS)


def _still_open(user: UserRow, count: int, hint: str) -> KickoffsStillOpen:
    kickoffs, have = ("kickoff", "has") if count == 1 else ("kickoffs", "have")
    return KickoffsStillOpen(f"{count} {kickoffs} of the user {user.name!r} {have} not ended.", hint)

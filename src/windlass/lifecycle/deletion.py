"""Deletes kickoffs and users with all their rows: on request, and when their retention time is over.

A deletion can't be undone.
"""

# See docs/decisions/store.md#kickoffs-of-a-user-are-found-by-reading-all

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from windlass import log
from windlass.errors import WindlassError
from windlass.kickoffs.ids import FIRST_ID
from windlass.store.audit import COMMAND_LINE, REMOVAL, Change
from windlass.store.ending import StopFilter
from windlass.store.retention import DETAILS, EVER, LARGE, TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.access.tokens import Tokens
    from windlass.kickoffs.retention import Retention
    from windlass.lifecycle.accept import Stops
    from windlass.store.audit import Actor
    from windlass.store.deployments import DeploymentStore
    from windlass.store.kickoffs import KickoffStore
    from windlass.store.retention import Details, RetentionSettings, RetentionStore, Table
    from windlass.store.sources import SourceStore
    from windlass.store.tokens import UserRow


BREATH = 0.02
"""Seconds between two transactions of retention, in which other statements can run."""
KEYS_AT_ONCE = 1000
PAUSE = 0.01
"""Seconds between two transactions of a deletion on request, in which other statements can run."""
KNOWN_WITHIN = 1.0
"""Seconds after which every server refuses the tokens of a disabled user."""
BETWEEN_LOOKS = 0.2
"""Seconds between two checks whether the stopped kickoffs have ended."""

logger = log.logger(__name__)


async def drop_all(store: RetentionStore, table: Table, kickoffs: Sequence[UUID], pause: float) -> int:
    """Deletes the rows of these kickoffs in the table, in bounded transactions. Returns the number of rows."""
    dropped, more = 0, True
    while more:
        some = await store.drop_rows(table, kickoffs)
        dropped, more = dropped + some, some == store.most_rows(table)
        await asyncio.sleep(pause)
    return dropped


class Retaining:
    """Removes expired data. Each method may be interrupted at any time: the next run finds the rest.

    `usual` is the retention of deployments whose project sets none. Entries of the audit log are kept for `audit` days,
    with 0 for ever.
    """

    def __init__(
        self,
        store: RetentionStore,
        kickoffs: KickoffStore,
        sources: SourceStore,
        usual: Retention,
        *,
        audit: float = 0.0,
    ) -> None:
        self._store = store
        self._kickoffs = kickoffs
        self._sources = sources
        self._usual = usual
        self._audit = audit

    async def remove_what_is_over(self) -> None:
        after = FIRST_ID
        while some := await self._store.deployments(after):
            for kept in some:
                await self._remove_of(kept)
            after = some[-1].deployment
        if self._audit:
            await self._remove_audit()

    async def _remove_audit(self) -> None:
        removed, more = 0, True
        while more:
            some = await self._store.drop_audit(self._audit)
            removed, more = removed + some, some == self._store.rows_at_once
            await asyncio.sleep(BREATH)
        if removed:
            logger.event("audit.removed", entries=removed)

    async def sweep_leftovers(self) -> None:
        """Removes unused sources, and rows whose kickoff does not exist. Windlass leaves no such rows. They come from
        deletions by hand or from an older release.
        """
        if removed := await self._sources.remove_unused():
            logger.event("sources.removed", sources=removed)
        for table in TABLES:
            await self._sweep(table)

    async def forget_the_expired(self) -> None:
        """Removes expired idempotency keys, and workers that have not reported for an hour."""
        await self._kickoffs.workers.forget_silent()
        forgotten = KEYS_AT_ONCE
        while forgotten == KEYS_AT_ONCE:
            forgotten = await self._kickoffs.forget_idempotency_keys(limit=KEYS_AT_ONCE)
            await asyncio.sleep(BREATH)

    async def _remove_of(self, kept: RetentionSettings) -> None:
        retention = self._usual.replaced_by(kept.retention)
        removed = await self._remove_kickoffs(kept.deployment, retention.kickoffs or 0)
        rows = [await self._remove_details(kept.deployment, what, getattr(retention, what) or 0) for what in DETAILS]
        if removed or any(rows):
            events, entries, deliveries = rows
            logger.event(
                "retention.removed",
                deployment=kept.slug,
                kickoffs=removed,
                events=events,
                journal_entries=entries,
                deliveries=deliveries,
            )

    async def _remove_kickoffs(self, deployment: UUID, days: float) -> int:
        removed = 0
        while days and (found := await self._store.ended(deployment, days)).kickoffs:
            for table in LARGE:
                await drop_all(self._store, table, found.kickoffs, BREATH)
            removed += await self._store.drop_kickoffs(found.kickoffs)
        return removed

    async def _remove_details(self, deployment: UUID, what: Details, days: float) -> int:
        removed = 0
        done = await self._store.progress(deployment, what) if days else EVER
        while days and (found := await self._store.ended(deployment, days, after=done)).until:
            removed += await drop_all(self._store, what, found.kickoffs, BREATH)
            done = found.until
            await self._store.set_progress(deployment, what, done)
        return removed

    async def _sweep(self, table: Table) -> None:
        after = FIRST_ID
        while (seen := await self._store.seen(table, after)).count:
            dropped = await drop_all(self._store, table, seen.orphans, BREATH) if seen.orphans else 0
            if dropped:
                logger.event("retention.swept", table=table, rows=dropped)
            after = seen.last
            await asyncio.sleep(BREATH)


class KickoffsStillOpen(WindlassError):  # noqa: N818 - describes the kickoffs
    pass


class Deletions:
    """Deletes kickoffs that have ended, in bounded transactions. An interrupted deletion can be repeated."""

    def __init__(self, store: RetentionStore) -> None:
        self.store = store

    async def delete(self, kickoffs: Sequence[UUID], by: Actor) -> int:
        """Returns the number of deleted kickoffs. Deletes the row of a kickoff itself last, with an entry of the audit
        log.
        """
        count = 0
        for start in range(0, len(kickoffs), self.store.at_once):
            some = kickoffs[start : start + self.store.at_once]
            for table in LARGE:
                await drop_all(self.store, table, some, PAUSE)
            deleted = await self.store.delete_kickoffs(some, by)
            for kickoff in deleted:
                logger.event("kickoff.deleted", kickoff_id=kickoff)
            count += len(deleted)
            await asyncio.sleep(PAUSE)
        return count

    async def delete_all_of(self, user: UUID) -> int:
        """Deletes the ended kickoffs of the user, on every deployment. Returns their number."""
        deleted, after = 0, FIRST_ID
        while (page := await self.store.kickoffs_of(user, after)).last:
            deleted += await self.delete(page.ended, REMOVAL)
            after = page.last
        return deleted


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

    async def find(self, name: str) -> UserRow:
        """Raises NoSuchUser."""
        return await self._tokens.user(name)

    async def delete(self, name: str, *, stop: bool, data_only: bool, by: Actor = COMMAND_LINE) -> int:
        """Returns the number of deleted kickoffs. With `data_only`, keeps the user and the tokens.

        The audit log has an entry of it by `by`, from before the first kickoff is stopped, unless `by` is the server.
        Raises NoSuchUser. Raises KickoffsStillOpen if a kickoff is open without `stop`, or if a stopped kickoff does
        not end in time.
        """
        user = await self._tokens.user(name)
        if not stop and (count := await self._deletions.store.open_kickoffs(user.id)):
            raise _still_open(user, count, "Stop them first, or give --stop.")
        if not data_only:
            # No new kickoff of the user is accepted from here on.
            await self._tokens.disable_user(name, by=by)
            await asyncio.sleep(KNOWN_WITHIN)
        if by.kind != "server":
            await self._deletions.store.note(Change(by, "user.delete_kickoffs" if data_only else "user.remove", name))
        if stop:
            await self._stop(user)
        deleted = await self._deletions.delete_all_of(user.id)
        if not data_only:
            await self._deletions.store.delete_user(user.id)
            logger.event("user.deleted", user_id=user.id)
        return deleted

    async def _stop(self, user: UserRow) -> None:
        for row in await self._deployments.all():
            await self._stops.stop_all(StopFilter(row["id"], owner=user.id), REMOVAL)
        clock = asyncio.get_running_loop()
        deadline = clock.time() + self._patience
        while count := await self._deletions.store.open_kickoffs(user.id):
            if clock.time() > deadline:
                raise _still_open(
                    user, count, "They are being stopped. After a worker has ended them, repeat the command."
                )
            await asyncio.sleep(BETWEEN_LOOKS)


def _still_open(user: UserRow, count: int, hint: str) -> KickoffsStillOpen:
    kickoffs, have = ("kickoff", "has") if count == 1 else ("kickoffs", "have")
    return KickoffsStillOpen(f"{count} {kickoffs} of the user {user.name!r} {have} not ended.", hint)

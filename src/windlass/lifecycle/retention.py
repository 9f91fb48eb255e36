"""Removes data whose retention time is over: events, journals and kickoffs, and rows without a kickoff."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from windlass import log
from windlass.store.retention import DETAILS, EVER, FIRST, TABLES

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.kickoffs.retention import Retention
    from windlass.store.kickoffs import KickoffStore
    from windlass.store.retention import Details, RetentionSettings, RetentionStore, Table

BREATH = 0.02
"""Seconds between two transactions, in which other statements can run."""
KEYS_AT_ONCE = 1000

logger = log.logger(__name__)


class Retaining:
    """Removes expired data. Each method may be interrupted at any time: the next run finds the rest.

    `usual` is the retention of deployments whose project sets none.
    """

    def __init__(self, store: RetentionStore, kickoffs: KickoffStore, usual: Retention) -> None:
        self._store = store
        self._kickoffs = kickoffs
        self._usual = usual

    async def remove_what_is_over(self) -> None:
        after = FIRST
        while some := await self._store.deployments(after):
            for kept in some:
                await self._remove_of(kept)
            after = some[-1].deployment

    async def sweep_leftovers(self) -> None:
        """Removes rows whose kickoff does not exist. Windlass leaves no such rows. They come from deletions by hand or
        from an older release.
        """
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
        retention = kept.retention.over(self._usual)
        removed = await self._remove_kickoffs(kept.deployment, retention.kickoffs or 0)
        rows = [await self._remove_details(kept.deployment, what, getattr(retention, what) or 0) for what in DETAILS]
        if removed or any(rows):
            events, entries = rows
            logger.event(
                "retention.removed", deployment=kept.slug, kickoffs=removed, events=events, journal_entries=entries
            )

    async def _remove_kickoffs(self, deployment: UUID, days: float) -> int:
        removed = 0
        while days and (found := await self._store.ended(deployment, days)).kickoffs:
            for table in DETAILS:
                await self._drop(table, found.kickoffs)
            removed += await self._store.drop_kickoffs(found.kickoffs)
        return removed

    async def _remove_details(self, deployment: UUID, what: Details, days: float) -> int:
        removed = 0
        done = await self._store.progress(deployment, what) if days else EVER
        while days and (found := await self._store.ended(deployment, days, after=done)).until:
            removed += await self._drop(what, found.kickoffs)
            done = found.until
            await self._store.set_progress(deployment, what, done)
        return removed

    async def _drop(self, table: Table, kickoffs: list[UUID]) -> int:
        dropped = 0
        while True:
            some = await self._store.drop_rows(table, kickoffs)
            await asyncio.sleep(BREATH)
            dropped += some
            if some < self._store.rows_at_once:
                return dropped

    async def _sweep(self, table: Table) -> None:
        after = FIRST
        while (seen := await self._store.seen(table, after)).count:
            dropped = await self._drop(table, seen.orphans) if seen.orphans else 0
            if dropped:
                logger.event("retention.swept", table=table, rows=dropped)
            after = seen.last
            await asyncio.sleep(BREATH)

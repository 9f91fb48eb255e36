from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from windlass.kickoffs.events import StoredEvent, stored_event
from windlass.lifecycle.loops import until_the_database_answers
from windlass.store.kickoffs import Batch

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.kickoffs.tasks import TaskRecords, Warning_
    from windlass.runner import Tether
    from windlass.store.kickoffs import Claimed, Entry, KickoffStore

BETWEEN_WRITES = 0.05
"""Seconds. What comes in between goes into one statement; the first and the last words of a run are written at once."""
MOST_WAITING = 500
MOST_BYTES_WAITING = 16 * 1024 * 1024
"""Events of one run, and bytes of them, that wait to be written before its child is made to wait."""


class NoLongerOurs(Exception):  # noqa: N818 - said of the kickoff
    """The kickoff went on without this run: its lease had ended, or it was stopped."""


class Reports:
    """What a run tells, on its way into the database: in order, in batches, each batch with the task records that
    changed, new warnings, the tokens used and model calls begun (those of all attempts), what the run waits for, and
    the finished steps for its journal. Those are written at once, for the run waits until the `tether` tells it that
    they are.
    """

    def __init__(self, store: KickoffStore, claimed: Claimed, records: TaskRecords, tether: Tether) -> None:
        self._store = store
        self._tether = tether
        self._kickoff: UUID = claimed.id
        self._attempt = claimed.attempt
        self._records = records
        self._seq = 0
        self._waiting: list[StoredEvent] = []
        self._entries: list[Entry] = []
        self._bytes = 0
        self._something = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._urgent = asyncio.Event()
        self._closed = False
        self._told_warnings = 0
        self._told_waiting_for: str | None = None
        self.waiting_for: str | None = None
        self._told_usage = claimed.usage
        self.usage = replace(claimed.usage)
        self._told_model_calls = self.model_calls = claimed.model_calls

    async def open(self) -> None:
        if self._attempt > 1:
            self._seq = await self._store.last_event(self._kickoff)

    async def add(self, kind: str, at: float, payload: dict[str, object]) -> None:
        """Waits while too much is unwritten: the run is not read any further then, and its child waits too."""
        await self._room.wait()
        self._seq += 1
        event = stored_event(self._seq, kind, at, payload)
        self._waiting.append(event)
        self._bytes += len(event.payload)
        if len(self._waiting) >= MOST_WAITING or self._bytes >= MOST_BYTES_WAITING:
            self._room.clear()
            self._urgent.set()

    def journal(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._urgent.set()

    def warn(self, warning: Warning_) -> None:
        self._records.warnings.append(warning)

    def take_warnings(self) -> list[Warning_]:
        """Those that came since it was last asked."""
        new = self._records.warnings[self._told_warnings :]
        self._told_warnings += len(new)
        return new

    def wake(self) -> None:
        self._something.set()

    def close(self) -> None:
        self._closed = True
        self._something.set()
        self._urgent.set()

    async def write(self) -> None:
        """Until closed and empty. Raises NoLongerOurs."""
        while True:
            await self._something.wait()
            self._something.clear()
            last = self._closed
            batch = self._take()
            if batch.tells or self._differs(batch):
                await until_the_database_answers(lambda: self._write(batch))  # noqa: B023 - awaited here
            if last:
                return
            await self._pause()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(BETWEEN_WRITES):
                await self._urgent.wait()

    def _take(self) -> Batch:
        events, self._waiting, self._bytes = self._waiting, [], 0
        entries, self._entries = self._entries, []
        self._room.set()
        if not self._closed:
            self._urgent.clear()
        usage = replace(self.usage) if self.usage != self._told_usage else None
        warnings = self.take_warnings()
        changed = self._records.take_changed()
        return Batch(events, changed, warnings, entries, usage, self.waiting_for, self.model_calls)

    def _differs(self, batch: Batch) -> bool:
        return (batch.waiting_for, batch.model_calls) != (self._told_waiting_for, self._told_model_calls)

    async def _write(self, batch: Batch) -> None:
        if not await self._store.write_reports(self._kickoff, self._attempt, batch):
            raise NoLongerOurs
        self._told_waiting_for, self._told_model_calls = batch.waiting_for, batch.model_calls
        self._told_usage = batch.usage or self._told_usage
        for entry in batch.entries:
            self._tether.written(entry.number)

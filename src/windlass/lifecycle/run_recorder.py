"""Writes the reports of a run to the database in batches."""

# See docs/decisions/runner.md#reports-wait-for-others

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from windlass.errors import Unstorable
from windlass.kickoffs.events import StoredEvent, stored_event
from windlass.lifecycle.background_tasks import until_stored
from windlass.lifecycle.storage_limits import Stored
from windlass.lifecycle.stream_chunks import StreamChunks
from windlass.store.reporting import Batch, JournalEntry
from windlass_child.protocol.sizes import size_in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from windlass.kickoffs.limits import Limits
    from windlass.kickoffs.questions import Question
    from windlass.kickoffs.tasks import TaskRecords, Warning_
    from windlass.runner import LeaseHandle, Terminator
    from windlass.store.claiming import Claimed
    from windlass.store.kickoffs import KickoffStore
    from windlass_child.protocol.messages import TaskEnded, TasksKnown, TaskStarted
    from windlass_child.protocol.validation import Encoded


T = TypeVar("T")

GATHERING = 0.025
"""Seconds that a report waits for others, to be written in one statement with them. A journal entry is written at once,
with the reports before it.
"""
APART = 0.05
"""Seconds between the beginnings of two writes of such reports."""
MOST_WAITING = 500
MOST_BYTES_WAITING = 8 * 1024 * 1024
"""Limits of the unwritten reports of one run. The first counts events and journal entries, the second their bytes and
the bytes of outputs. At either limit the child waits.
"""
BATCH_BYTES = 4 * 1024 * 1024
"""Bytes that one statement writes at most. A single larger value has a statement of its own."""
HOLDING = 1.0
"""Seconds that the last reports wait for the end of the run, to be written with its outcome."""
START_WITHIN = 1.0
"""Seconds after which the start of a run's process is written, if no other report was. A loss counts only with it."""
LAST_BYTES = 64 * 1024
"""Bytes of the last reports that are written together with the outcome at most."""


class NoLongerOurs(Exception):  # noqa: N818 - describes the kickoff
    """Reports that the kickoff went on without this run: the lease of the run had ended, or the kickoff was stopped."""


class RunRecorder:
    """Writes the reports of a run into the database, in order and in batches.

    A batch holds events, the task records that changed, new warnings, and journal entries. It also holds the tokens
    used, the model calls begun (both counted over all attempts), and what the run waits for. Journal entries are
    written at once, because the run waits until `lease_handle` reports their commit. The last batch is left in
    `last` when it is small and has no entries, to be written together with the outcome.

    `add`, `task` and `journal` wait while too much is unwritten. No further reports of the run are read then, so its
    child waits too. A large value is written before the call returns, so that the server holds one large value of a run
    at a time.
    """

    def __init__(
        self,
        store: KickoffStore,
        claimed: Claimed,
        records: TaskRecords,
        lease_handle: LeaseHandle,
        limits: Limits,
        terminator: Terminator,
    ) -> None:
        self._store = store
        self.stored = Stored(limits, terminator, self.warn)
        self._lease_handle = lease_handle
        self._kickoff: UUID = claimed.id
        self._attempt = claimed.attempt
        self._records = records
        self._seq = 0
        self._waiting: list[StoredEvent] = []
        self._chunks = StreamChunks()
        self._entries: list[JournalEntry] = []
        self._questions: list[Question] = []
        self._bytes = 0
        self._flushes: list[asyncio.Future[None]] = []
        self._something = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._urgent = asyncio.Event()
        self._closed = False
        self._gathering = GATHERING
        self._next_write = 0.0
        self.last: Batch | None = None
        self._written_warnings = 0
        self._written_waiting_for: str | None = None
        self.waiting_for: str | None = None
        self._written_usage = claimed.usage
        self.usage = replace(claimed.usage)
        self._written_model_calls = self.model_calls = claimed.model_calls
        self.process_started = self._written_start = False

    async def open(self) -> None:
        if self._attempt > 1:
            self._seq, self.stored.size, self.stored.chunks = await self._store.stored_so_far(self._kickoff)
            self.stored.events = self._seq - self.stored.chunks

    async def add(self, kind: str, at: float, payload: dict[str, object] | Encoded) -> None:
        await self._room.wait()
        if not self.stored.full and (added := self._chunks.joined(kind, payload)) is not None:
            self.stored.add(added, rows=0)
            self._grow(added)
            return
        if not self.stored.has_room_for(kind):
            return
        self._seq += 1
        event = stored_event(self._seq, kind, at, payload)
        self.stored.add_event(kind, len(event.payload))
        self._waiting.append(event)
        self._chunks.begin(event, payload)
        if self._grow(len(event.payload)):
            await self._flushed()

    def last_event(self, kind: str, at: float, payload: dict[str, object]) -> StoredEvent:
        """Returns an event with the next number, to be written with the end of the run."""
        self._seq += 1
        return stored_event(self._seq, kind, at, payload)

    async def task(self, message: TasksKnown | TaskStarted | TaskEnded) -> None:
        """Applies the message to the task records. Raises TooManyRecords."""
        await self._room.wait()
        self._records.apply(message)
        if self._grow(len(getattr(message, "output", None) or "")):
            await self._flushed()

    async def journal(self, entry: JournalEntry) -> None:
        await self._room.wait()
        self._entries.append(entry)
        self._urgent.set()
        if self._grow(len(entry.record)):
            await self._flushed()

    async def ask(self, question: Question, entry: JournalEntry) -> None:
        """Records that the process waits for a person."""
        self._questions.append(question)
        self._bytes += len(question.draft)
        self.waiting_for = "human"
        await self.journal(entry)

    def _grow(self, size: int) -> bool:
        """Counts the bytes of a report. Returns whether the caller must wait until it is written."""
        self._bytes += size
        if len(self._waiting) + len(self._entries) >= MOST_WAITING or self._bytes >= MOST_BYTES_WAITING:
            self._room.clear()
            self._urgent.set()
        return size > BATCH_BYTES

    async def _flushed(self) -> None:
        """Waits until all reports that arrived so far are written."""
        flush: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append(flush)
        self._urgent.set()
        self.wake()
        await flush

    def warn(self, warning: Warning_) -> None:
        self._records.warn(warning)

    def take_warnings(self) -> list[Warning_]:
        """Returns the warnings that were added since the last call."""
        new = self._records.warnings[self._written_warnings :]
        self._written_warnings += len(new)
        return new

    def begin(self) -> None:
        """Records that the process of the run has started, with the next reports or after START_WITHIN."""
        if not self.process_started:
            self.process_started = True
            asyncio.get_running_loop().call_later(START_WITHIN, self.wake)

    def hold(self) -> None:
        """Lets reports wait for `close`, for HOLDING seconds: the run ends soon."""
        self._gathering = HOLDING

    def wake(self) -> None:
        self._something.set()

    def close(self) -> None:
        self._closed = True
        self._something.set()
        self._urgent.set()

    async def write(self) -> None:
        """Writes batches until the recorder is closed and empty.

        Raises NoLongerOurs, and Unstorable for a value that the database can't store.
        """
        closed = False
        while not closed:
            await self._something.wait()
            await self._gather()
            self._something.clear()
            closed = self._closed
            await self._write_all()

    async def write_last(self) -> None:
        """Writes the batch that is left. Raises what `write` raises."""
        batch, self.last = self.last, None
        if batch is not None:
            await self._write(batch)

    async def _write_all(self) -> None:
        left = True
        while left:
            batch = self._take()
            left = self._left
            flushes, self._flushes = ([], self._flushes) if left else (self._flushes, [])
            if self._closed and not (left or flushes or batch.entries) and batch.size <= LAST_BYTES:
                self.last = batch if batch.has_content else None
            elif batch.has_content or batch.row_changes:
                await self._write(batch)
            for flush in flushes:
                if not flush.done():
                    flush.set_result(None)

    async def _gather(self) -> None:
        now = time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(self._gathering, self._next_write - now)):
                await self._urgent.wait()
        self._next_write = time.monotonic() + APART

    @property
    def _left(self) -> bool:
        return bool(self._waiting or self._entries or self._records.changed)

    def _take(self) -> Batch:
        """Takes the reports for one statement. A journal entry is taken after all reports that arrived before it."""
        self._chunks.put_into(self._waiting)
        events, room = fitting(self._waiting, BATCH_BYTES, lambda event: len(event.payload))
        del self._waiting[: len(events)]
        records = [] if self._waiting else self._records.take_changed(room)
        entries: list[JournalEntry] = []
        questions: list[Question] = []
        if not self._waiting and not self._records.changed:
            entries, _ = fitting(self._entries, BATCH_BYTES, lambda entry: len(entry.record))
            del self._entries[: len(entries)]
            numbers = {entry.number for entry in entries}
            questions = [one for one in self._questions if one.number in numbers]
            self._questions = [one for one in self._questions if one.number not in numbers]
        usage = replace(self.usage) if self.usage != self._written_usage else None
        warnings = self.take_warnings()
        changes = bool(warnings or entries or usage) or self._differs()
        batch = Batch(
            events,
            records,
            warnings,
            entries,
            questions,
            usage,
            self.waiting_for,
            self.model_calls,
            changes,
            self.process_started,
        )
        self._bytes = self._bytes - batch.size if self._left else 0
        if self._bytes < MOST_BYTES_WAITING and len(self._waiting) + len(self._entries) < MOST_WAITING:
            self._room.set()
        if not self._closed and not self._left:
            self._urgent.clear()
        return batch

    def _differs(self) -> bool:
        written = self._written_waiting_for, self._written_model_calls, self._written_start
        return (self.waiting_for, self.model_calls, self.process_started) != written

    async def _write(self, batch: Batch) -> None:
        """Writes the batch. Writes it in halves if the database can't store it as a whole."""
        halves = batch.halves()
        try:
            await until_stored(
                lambda: self._write_once(batch), self._store.answers, batch.size, given_up=1 if halves else 3
            )
        except Unstorable as error:
            if not halves:
                message = f"the run sent {batch.name} of {size_in_words(batch.size)}, and {error.message}"
                raise Unstorable(message, error.hint) from error
            for half in halves:
                await self._write(half)

    async def _write_once(self, batch: Batch) -> None:
        if not await self._store.write_reports(self._kickoff, self._attempt, batch):
            raise NoLongerOurs
        self._written_waiting_for, self._written_model_calls = batch.waiting_for, batch.model_calls
        self._written_start = batch.process_started
        self._written_usage = batch.usage or self._written_usage
        for entry in batch.entries:
            if entry.confirmed:
                self._lease_handle.written(entry.number)


def fitting(items: Sequence[T], room: int, size: Callable[[T], int]) -> tuple[list[T], int]:
    """Returns the first items that fit into the room, at least one, and the remaining room."""
    taken: list[T] = []
    for item in items:
        if taken and size(item) > room:
            break
        taken.append(item)
        room -= size(item)
    return taken, room

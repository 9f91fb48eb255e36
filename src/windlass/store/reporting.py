# See docs/decisions/store.md#statements-of-reports-have-only-the-parts-that-have-rows

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql

from windlass.aio import offload
from windlass.kickoffs.events import StoredEvent, to_json
from windlass.kickoffs.questions import Question
from windlass.kickoffs.states import State
from windlass.kickoffs.tasks import TaskRecord
from windlass.store import files
from windlass.store.database import Store, fetch, filled, queries
from windlass.store.values import SQL as STAGING
from windlass.store.values import (
    Array,
    encoded,
    is_large,
    json_of,
    refused,
    sanitized_json,
    sanitized_text,
    stage,
    unstorable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.kickoffs.files import FileChanges
    from windlass.kickoffs.outcome import TokenUsage
    from windlass.kickoffs.tasks import Warning_
    from windlass.store.database import Database, Row
    from windlass_child.protocol.fields import Text

SQL = queries("reporting")
NOTHING = sql.SQL("")
DRAFTS = 1 << 30
"""Added to the number of a question, it is the place of the question's draft among staged values."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A finished step for the journal.

    `record` is sealed. `position` is the position of its task record, None when it has none. `output_elsewhere` means
    that the output of the step is stored in the task record and not in `record`. `files` are the changes of the
    kickoff's files since the entry before. With `confirmed` the run waits until the entry is committed.
    """

    number: int
    key: str
    record: str
    position: int | None = None
    output_elsewhere: bool = False
    files: FileChanges | None = None
    confirmed: bool = True


class StoredSoFar(NamedTuple):
    """The data that all attempts of a kickoff have stored.

    `last_event` is the number of the last event, `size` the bytes of events, task outputs and journal, `chunks` the
    number of events that are chunks of streamed answers.
    """

    last_event: int
    size: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Reports of a run that are written together.

    `usage` is the total of all attempts, None when it is unchanged. `model_calls` is the number of started model calls.
    `waiting_for` is what the run waits for now. With `process_started`, the process of the run has started. Without
    `row_changes`, `usage`, `model_calls` and `waiting_for` have the values of the last write, and there are no
    warnings, no journal entries and no questions.
    """

    events: Sequence[StoredEvent] = ()
    records: Sequence[TaskRecord] = ()
    warnings: Sequence[Warning_] = ()
    entries: Sequence[JournalEntry] = ()
    questions: Sequence[Question] = ()
    usage: TokenUsage | None = None
    waiting_for: str | None = None
    model_calls: int = 0
    row_changes: bool = True
    process_started: bool = False

    @property
    def size(self) -> int:
        """The bytes of all members that can be long."""
        outputs = sum(len(record.output or "") for record in self.records)
        drafts = sum(len(one.draft) for one in self.questions)
        events, entries = sum(len(one.payload) for one in self.events), sum(len(one.record) for one in self.entries)
        return outputs + drafts + events + entries

    @property
    def name(self) -> str:
        """Describes the item of a batch of one item."""
        if self.events:
            return f"an event {self.events[0].type[:100]!r}"
        if self.records:
            return "the output of a task"
        return "an entry for its journal" if self.entries else "a draft"

    def halves(self) -> tuple[Batch, Batch] | None:
        """Splits the batch into two, to be written in this order. Returns None for a batch of one item."""
        items = [*self.events, *self.records, *self.entries, *self.questions]
        if len(items) <= 1:
            return None
        first, second = (list(items[part]) for part in (slice(len(items) // 2), slice(len(items) // 2, None)))
        return self._with(first, self.warnings), self._with(second, ())

    def _with(self, items: Sequence[object], warnings: Sequence[Warning_]) -> Batch:
        return replace(
            self,
            events=[one for one in items if isinstance(one, StoredEvent)],
            records=[one for one in items if isinstance(one, TaskRecord)],
            entries=[one for one in items if isinstance(one, JournalEntry)],
            questions=[one for one in items if isinstance(one, Question)],
            warnings=warnings,
        )

    @property
    def has_content(self) -> bool:
        return bool(self.events or self.records or self.warnings or self.entries or self.questions or self.usage)


class Parts(NamedTuple):
    """The parts of a batch that have content."""

    events: bool
    records: bool
    entries: bool
    questions: bool
    warnings: bool

    @classmethod
    def of(cls, batch: Batch) -> Parts:
        return cls(*map(bool, (batch.events, batch.records, batch.entries, batch.questions, batch.warnings)))


@cache
def writing(parts: Parts, *, row_changes: bool) -> sql.SQL:
    """Returns the statement that writes the parts of a batch."""
    if not row_changes:
        return _statement(SQL["unchanged"], parts, SQL["notified"])
    changed = SQL["changed"].format(
        losses=SQL["finished_step"] if parts.entries else NOTHING, asked=_has_asked(parts), warnings=_warnings(parts)
    )
    return _statement(changed, parts, SQL["notified"])


@cache
def pausing(parts: Parts) -> sql.SQL:
    """Returns the statement that pauses a kickoff, and writes the parts of the last batch of its run."""
    paused = SQL["paused"].format(asked=_has_asked(parts), warnings=_warnings(parts))
    return _statement(paused, parts, SQL["notified"])


@cache
def settling(parts: Parts, *, output_of: bool) -> sql.SQL:
    """Returns the statement that ends a kickoff, and writes the parts of the last batch of its run. With `output_of`,
    the kickoff's output is that of a task. Streams of its events learn of its end.
    """
    output = SQL["output_of_task"] if output_of else SQL["own_output"]
    return _statement(SQL["settled"].format(output=output, warnings=_warnings(parts)), parts, NOTHING)


def _warnings(parts: Parts) -> sql.SQL:
    return SQL["warnings"] if parts.warnings else NOTHING


def _has_asked(parts: Parts) -> sql.SQL:
    return SQL["has_asked"] if parts.questions else NOTHING


def _statement(live: sql.Composable, parts: Parts, notified: sql.SQL) -> sql.SQL:
    return filled(
        SQL["reports"],
        live=live,
        events=SQL["events"] if parts.events else NOTHING,
        records=SQL["records"] if parts.records else NOTHING,
        entries=SQL["entries"] if parts.entries else NOTHING,
        questions=SQL["questions"] if parts.questions else NOTHING,
        asks=SQL["asks"] if parts.questions else NOTHING,
        notified=notified if parts.events else NOTHING,
    )


class Reports(Store):
    """Stores what runs report."""

    async def stored_so_far(self, kickoff: UUID) -> StoredSoFar:
        row = await self._database.row(SQL["stored_so_far"], {"kickoff": kickoff})
        return StoredSoFar(int(row["seq"]), int(row["bytes"]), int(row["chunks"])) if row else StoredSoFar(0, 0, 0)

    async def write_reports(self, kickoff: UUID, attempt: int, batch: Batch) -> bool:
        """Writes what a run has reported. Adds only warnings that the kickoff does not have.

        Returns False, and writes nothing, when the kickoff has gone on to another attempt. The caller must end the run.

        Raises Unstorable when PostgreSQL refuses a value permanently.
        """
        values = {"kickoff": kickoff, "attempt": attempt}
        statement = writing(Parts.of(batch), row_changes=batch.row_changes)
        return await _write(self._database, batch, statement, values) is not None

    async def pause(
        self, kickoff: UUID, attempt: int, batch: Batch, changes: FileChanges | None = None
    ) -> State | None:
        """Ends the attempt whose run waits for a person: writes its last reports with the question, and the changes of
        its files.

        Returns the state of the kickoff: PENDING_HUMAN_INPUT, or CANCELLED when a stop was requested. Returns None, and
        writes nothing, when the kickoff has gone on to another attempt or has ended. Raises Unstorable when PostgreSQL
        refuses a value permanently.
        """
        values = {"kickoff": kickoff, "attempt": attempt}
        row = await _write(self._database, batch, pausing(Parts.of(batch)), values, changes)
        return State(row["state"]) if row else None


async def _write(
    database: Database, batch: Batch, statement: sql.SQL, values: Row, changes: FileChanges | None = None
) -> Row | None:
    staged: list[Text | None] = [
        *(record.output for record in batch.records),
        *(entry.record for entry in batch.entries),
        *(question.draft for question in batch.questions),
    ]
    columns = await offload(sum(len(one) for one in staged if one and is_large(one)), lambda: columns_of(batch))
    all_changes = [one for one in [*(entry.files for entry in batch.entries), changes] if one]
    try:
        if not all_changes and not any(map(is_large, staged)):
            return await database.row(statement, {**values, **columns})
        return await _write_together(database, batch, statement, {**values, **columns}, all_changes)
    except psycopg.Error as error:
        if refused(error):
            raise unstorable(error) from error
        raise


async def _write_together(
    database: Database, batch: Batch, statement: sql.SQL, values: Row, all_changes: Sequence[FileChanges]
) -> Row | None:
    """Writes the batch in a transaction of several statements: large values are staged, files have their own tables."""
    # A record and an entry may have the same number, so entries get negative keys.
    large = {
        one.position: encoded(one.output) for one in batch.records if one.output is not None and is_large(one.output)
    }
    large |= {-one.number: one.record.encode() for one in batch.entries if is_large(one.record)}
    large |= {DRAFTS + one.number: encoded(one.draft) for one in batch.questions if is_large(one.draft)}
    async with database.transaction(size=batch.size if large else 0) as connection:
        if large:
            await stage(connection, large)
        rows = await fetch(connection, statement, values)
        if rows and large:
            await connection.execute(STAGING["move_outputs"], values)
            await connection.execute(STAGING["move_entries"], values)
            if batch.questions:
                await connection.execute(STAGING["move_drafts"], {**values, "drafts": DRAFTS})
        for changes in all_changes if rows else ():
            await files.apply(connection, values["kickoff"], changes)
    return rows[0] if rows else None


def columns_of(batch: Batch) -> dict[str, Any]:
    """Returns the values of the batch for the statements of `writing`."""
    return {
        "warnings": warnings_json(batch.warnings) if batch.warnings else None,
        "waiting_for": batch.waiting_for,
        "model_calls": batch.model_calls,
        "process_started": batch.process_started,
        "token_usage": None if batch.usage is None else to_json(batch.usage.to_json()),
        **(_event_columns(batch.events) if batch.events else {}),
        **(_record_columns(batch.records) if batch.records else {}),
        **(_entry_columns(batch.entries) if batch.entries else {}),
        **(_question_columns(batch.questions) if batch.questions else {}),
    }


def warnings_json(warnings: Sequence[Warning_]) -> str:
    return to_json(sanitized_json([warning.to_json() for warning in warnings]))


def text(value: str | None) -> str | None:
    return None if value is None else sanitized_text(value)


def _event_columns(events: Sequence[StoredEvent]) -> dict[str, Array]:
    return {
        "seqs": Array.of_numbers("bigint", [event.seq for event in events]),
        "types": Array.of_texts([sanitized_text(event.type) for event in events]),
        "ats": Array.of_numbers("float8", [event.at for event in events]),
        "payloads": Array.of_texts([event.payload for event in events]),
    }


def _entry_columns(entries: Sequence[JournalEntry]) -> dict[str, Array]:
    return {
        "numbers": Array.of_numbers("int", [entry.number for entry in entries]),
        "entry_keys": Array.of_texts([sanitized_text(entry.key) for entry in entries]),
        "entry_positions": Array.of_numbers("int", [entry.position for entry in entries]),
        "entries": Array.of_texts(["" if is_large(entry.record) else entry.record for entry in entries]),
        "outputs_elsewhere": Array.of_numbers("bool", [entry.output_elsewhere for entry in entries]),
    }


def _question_columns(questions: Sequence[Question]) -> dict[str, Any]:
    drafts = ['""' if is_large(one.draft) else json_of(one.draft) for one in questions]
    return {
        "deployment": questions[0].deployment_id,
        "question_ids": Array.of_texts([str(one.id) for one in questions]),
        "question_keys": Array.of_texts([sanitized_text(one.key) for one in questions]),
        "question_numbers": Array.of_numbers("int", [one.number for one in questions]),
        "question_positions": Array.of_numbers("int", [one.position for one in questions]),
        "methods": Array.of_texts([text(one.method) for one in questions]),
        "questions": Array.of_texts([sanitized_text(one.text) for one in questions]),
        "drafts": Array.of_texts(drafts),
        "choices": Array.of_texts([to_json(sanitized_json(list(one.choices))) for one in questions]),
        "waits": Array.of_numbers("bool", [one.waits for one in questions]),
        "expiries": Array.of_numbers("float8", [one.seconds for one in questions]),
        "on_timeouts": Array.of_texts([text(one.on_timeout) for one in questions]),
        "reminders": Array.of_numbers("float8", [one.remind_every for one in questions]),
    }


def _record_columns(records: Sequence[TaskRecord]) -> dict[str, Array]:
    return {
        "positions": Array.of_numbers("int", [record.position for record in records]),
        "task_ids": Array.of_texts([sanitized_text(record.task_id) for record in records]),
        "task_keys": Array.of_texts([record.key for record in records]),
        "names": Array.of_texts([text(record.name) for record in records]),
        "agents": Array.of_texts([text(record.agent) for record in records]),
        "states": Array.of_texts([record.state for record in records]),
        "registered": Array.of_numbers("bool", [record.registered for record in records]),
        "outputs": Array.of_texts([None if is_large(record.output) else json_of(record.output) for record in records]),
        "seconds": Array.of_numbers("float8", [record.execution_time for record in records]),
        "starts": Array.of_numbers("float8", [record.started_at for record in records]),
        "ends": Array.of_numbers("float8", [record.finished_at for record in records]),
    }

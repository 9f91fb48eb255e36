"""Files in the database: their chunks, the fence around them, and what is left of interrupted attempts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from store.kickoff_rows import DONE
from windlass.kickoffs.files import FileChanges, StoredFile
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.outcome import TokenUsage
from windlass.store.reading import MOST_FILES, MOST_STORED, MOST_TOGETHER, SQL
from windlass.store.reporting import Batch, JournalEntry

if TYPE_CHECKING:
    from uuid import UUID

    from store.kickoff_rows import Rows
    from windlass.store.claiming import Claimed


def a_file(path: str = "report.md", **members: Any) -> StoredFile:
    return replace(StoredFile(path, 7, b"digest", "text/markdown", new_id()), **members)


async def append(rows: Rows, claimed: Claimed, file: StoredFile, position: int = 0, attempt: int | None = None) -> bool:
    number = claimed.attempt if attempt is None else attempt
    return await rows.store.files.append(claimed.id, number, file.content, position, b"content")


async def write(rows: Rows, claimed: Claimed, changes: FileChanges, number: int = 1, ahead: int = 0) -> bool:
    entry = JournalEntry(number, "step", "sealed", files=changes)
    return await rows.store.write_reports(claimed.id, claimed.attempt + ahead, Batch(entries=[entry]))


async def chunks(rows: Rows) -> set[UUID]:
    return {row["content"] for row in await rows.database.rows("SELECT content FROM file_chunks")}


async def test_chunks_are_stored_for_the_latest_attempt_alone(rows: Rows) -> None:
    claimed, file = await rows.started(), a_file()
    assert await append(rows, claimed, file)
    assert await append(rows, claimed, file), "a repeated write, whose answer was lost"
    assert not await append(rows, claimed, a_file(), attempt=claimed.attempt + 1)
    assert not await append(rows, claimed, a_file(), attempt=claimed.attempt - 1)
    await rows.settle(claimed)
    assert not await append(rows, claimed, a_file())
    assert await chunks(rows) == {file.content}
    assert await rows.store.files.chunk(claimed.id, file.content, 0) == b"content"
    assert await rows.store.files.chunk(claimed.id, file.content, 1) is None


async def test_files_are_listed_with_the_journal_entry_of_their_step(rows: Rows) -> None:
    claimed, first, other = await rows.started(), a_file("b"), a_file("a")
    for file in (first, other):
        await append(rows, claimed, file)
    assert await write(rows, claimed, FileChanges(2, [first, other]))
    assert await rows.store.files.of(claimed.id) == [other, first]
    assert await rows.store.files.find(claimed.id, "b") == first
    assert await rows.store.files.find(claimed.id, "c") is None
    status = await rows.status(claimed.id)
    assert (status.file_count, [file["path"] for file in json.loads(status.files or "[]")]) == (2, ["a", "b"])


async def test_a_changed_file_replaces_its_content_and_a_removed_one_goes(rows: Rows) -> None:
    claimed, old, new, gone = await rows.started(), a_file(), a_file(size=8), a_file("gone")
    for file in (old, new, gone):
        await append(rows, claimed, file)
    await write(rows, claimed, FileChanges(2, [old, gone]))
    changes = FileChanges(1, [new], ["gone"], [old.content, gone.content])
    for _ in range(2):  # the answer to the first write was lost
        assert await write(rows, claimed, changes, 2)
    assert await rows.store.files.of(claimed.id) == [new]
    assert await chunks(rows) == {new.content}
    assert (await rows.status(claimed.id)).file_count == 1


async def test_a_run_whose_kickoff_went_on_lists_no_files(rows: Rows) -> None:
    claimed, file = await rows.started(), a_file()
    await append(rows, claimed, file)
    changes = FileChanges(1, [file])
    assert not await write(rows, claimed, changes, ahead=1)
    settle = rows.store.settle
    assert not await settle(claimed.id, claimed.attempt + 1, DONE, TokenUsage(), [], changes=changes)
    assert await rows.store.files.of(claimed.id) == []
    assert (await rows.status(claimed.id)).file_count == 0
    assert await settle(claimed.id, claimed.attempt, DONE, TokenUsage(), [], changes=changes)
    assert await rows.store.files.of(claimed.id) == [file]


async def test_the_next_attempt_gets_listed_files_and_removes_other_chunks(rows: Rows) -> None:
    claimed, file, unlisted = await rows.started(), a_file(), a_file()
    for one in (file, unlisted):
        await append(rows, claimed, one)
    await write(rows, claimed, FileChanges(1, [file]))
    other = await rows.started()
    of_another = a_file()
    await append(rows, other, of_another)
    assert await rows.store.files.resume(claimed.id, claimed.attempt + 1) == []
    assert await chunks(rows) == {file.content, unlisted.content, of_another.content}
    await rows.requeue(claimed)
    await rows.come_due()
    (again,) = await rows.claim()
    assert await rows.store.files.resume(again.id, again.attempt) == [file]
    assert await chunks(rows) == {file.content, of_another.content}


async def test_the_status_of_a_kickoff_without_files_reads_no_table_of_files(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.settle(claimed)
    values = {"ids": [claimed.id], "most_stored": MOST_STORED, "most": MOST_TOGETHER, "most_files": MOST_FILES}
    plan = await rows.database.rows(f"EXPLAIN (ANALYZE, COSTS off) {SQL['statuses'].as_string()}", values)
    lines = [row["QUERY PLAN"] for row in plan]
    scans = [line for line in lines if " on files" in line]
    assert scans
    assert all("never executed" in line for line in scans)

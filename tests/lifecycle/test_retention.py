"""What is over goes, in turns, and nothing else does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from store.kickoff_rows import DONE, FAILED, Rows
from windlass.kickoffs.ids import first_id, new_id
from windlass.kickoffs.retention import Retention
from windlass.lifecycle.deletion import Retaining
from windlass.store.database import Database
from windlass.store.kickoffs import KickoffStore
from windlass.store.retention import TABLES, RetentionStore
from windlass.store.sources import SourceStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

USUAL = Retention(kickoffs=90, events=30, deliveries=20, journal=7)
EVENTS, ENTRIES, FILES, CHUNKS = 3, 2, 2, 5


@pytest.fixture
async def rows(emptied_url: str) -> AsyncIterator[Rows]:
    async with Database(emptied_url) as database:
        yield await Rows.make(database)


def retaining(rows: Rows, usual: Retention = USUAL, audit: float = 0.0, **sizes: int) -> Retaining:
    store = RetentionStore(rows.database, **sizes)
    return Retaining(store, rows.store, SourceStore(rows.database), usual, audit=audit)


async def ended(rows: Rows, days_ago: float, outcome: Any = DONE) -> UUID:
    """A kickoff with rows in every table."""
    claimed = await rows.started()
    await rows.settle(claimed, outcome)
    await fill(rows.database, claimed.id)
    await rows.database.execute(
        "UPDATE kickoffs SET finished_at = now() - %(ago)s WHERE id = %(id)s",
        {"id": claimed.id, "ago": timedelta(days=days_ago)},
    )
    return claimed.id


async def fill(database: Database, kickoff: UUID) -> None:
    await database.execute(
        "INSERT INTO events SELECT %(id)s, number, 1, 'line', now(), '{}' FROM generate_series(1, %(count)s) AS number",
        {"id": kickoff, "count": EVENTS},
    )
    await database.execute(
        "INSERT INTO journal (kickoff_id, number, attempt, key, record) "
        "SELECT %(id)s, number, 1, 'key', 'sealed' FROM generate_series(1, %(count)s) AS number",
        {"id": kickoff, "count": ENTRIES},
    )
    await database.execute(
        "INSERT INTO files SELECT %(id)s, number, 1, '', 'text/plain', %(id)s "
        "FROM generate_series(1, %(count)s) AS number",
        {"id": kickoff, "count": FILES},
    )
    await database.execute(
        "INSERT INTO file_chunks SELECT %(id)s, %(id)s, number, 'x' FROM generate_series(1, %(count)s) AS number",
        {"id": kickoff, "count": CHUNKS},
    )
    await database.execute(
        "INSERT INTO webhooks (kickoff_id, endpoint_id, hooks) VALUES (%(id)s, %(id)s, '{}')", {"id": kickoff}
    )
    await database.execute(
        "INSERT INTO deliveries (id, deployment_id, kickoff_id, endpoint_id, hook) "
        "VALUES (%(id)s, %(id)s, %(id)s, %(id)s, 'crew')",
        {"id": kickoff},
    )
    await database.execute(
        "INSERT INTO questions (id, kickoff_id, number, key, deployment_id, attempt, question, draft, waits) "
        "VALUES (%(id)s, %(id)s, 1, 'key', %(id)s, 1, '', '\"\"', false)",
        {"id": kickoff},
    )


async def count(rows: Rows, table: str, kickoff: UUID) -> int:
    key = "id" if table == "kickoffs" else "kickoff_id"
    (row,) = await rows.database.rows(f"SELECT count(*) AS n FROM {table} WHERE {key} = %(id)s", {"id": kickoff})
    return int(row["n"])


async def left(rows: Rows, kickoff: UUID) -> dict[str, int]:
    return {table: await count(rows, table, kickoff) for table in ("kickoffs", *TABLES)}


WHOLE = {
    "kickoffs": 1,
    "events": EVENTS,
    "journal": ENTRIES,
    "files": FILES,
    "file_chunks": CHUNKS,
    "task_records": 2,
    "attempts": 1,
    "deliveries": 1,
    "webhooks": 1,
    "questions": 1,
}
NOTHING = dict.fromkeys(WHOLE, 0)


@pytest.mark.parametrize("outcome", [DONE, FAILED], ids=["succeeded", "failed"])
async def test_a_kickoff_goes_with_all_its_rows_when_its_time_is_over(rows: Rows, outcome: Any) -> None:
    over, young = await ended(rows, 91, outcome), await ended(rows, 1, outcome)
    await retaining(rows).remove_what_is_over()
    assert await left(rows, over) == NOTHING
    assert await left(rows, young) == WHOLE
    assert over not in await rows.store.statuses([over, young])


async def test_journals_go_before_events_and_events_before_kickoffs(rows: Rows) -> None:
    week, month = await ended(rows, 8), await ended(rows, 31)
    await retaining(rows).remove_what_is_over()
    assert await left(rows, week) == WHOLE | {"journal": 0}
    assert await left(rows, month) == WHOLE | {"journal": 0, "events": 0, "deliveries": 0}


async def test_what_has_not_ended_stays_however_old_it_is(rows: Rows) -> None:
    running = await rows.started()
    (waiting,) = await rows.accept()
    for kickoff in (waiting, running.id):
        await fill(rows.database, kickoff)
    await rows.database.execute("UPDATE kickoffs SET created_at = 'epoch', started_at = 'epoch'")
    await retaining(rows).remove_what_is_over()
    for kickoff in (waiting, running.id):
        assert (await left(rows, kickoff)).items() >= {"kickoffs": 1, "events": EVENTS, "journal": ENTRIES}.items()


async def test_a_project_says_how_long_its_own_are_kept(rows: Rows) -> None:
    short = await rows.beside("short", retention={"kickoffs": 1})
    ever = await rows.beside("ever", retention={"kickoffs": 0, "events": 0, "deliveries": 0, "journal": 0})
    gone, kept, usual = await ended(short, 2), await ended(ever, 3000), await ended(rows, 2)
    await retaining(rows).remove_what_is_over()
    assert await left(rows, gone) == NOTHING
    assert await left(rows, kept) == WHOLE
    assert await left(rows, usual) == WHOLE


async def test_the_settings_of_a_deployment_count_before_its_project(rows: Rows) -> None:
    await rows.database.execute(
        """UPDATE versions SET source = '{"options": {"retention": {"events": 3, "journal": 2}}}'"""
    )
    await rows.database.execute("""UPDATE deployments SET settings = '{"retention": {"events": "forever"}}'""")
    (kept,) = await RetentionStore(rows.database).deployments()
    assert kept.retention == Retention(events=0, journal=2)


async def test_for_ever_is_for_ever(rows: Rows) -> None:
    old = await ended(rows, 3000)
    await retaining(rows, Retention(0, 0, 0)).remove_what_is_over()
    assert await left(rows, old) == WHOLE


async def test_many_go_in_turns_of_bounded_size(rows: Rows) -> None:
    over = [await ended(rows, 100 + number) for number in range(5)]
    month = [await ended(rows, 40 + number) for number in range(5)]
    young = await ended(rows, 1)
    await retaining(rows, at_once=2, rows_at_once=2).remove_what_is_over()
    assert [await left(rows, kickoff) for kickoff in over] == [NOTHING] * 5
    assert [await count(rows, "events", kickoff) for kickoff in month] == [0] * 5
    assert await left(rows, young) == WHOLE


async def test_those_that_ended_at_the_very_same_time_go_together(rows: Rows) -> None:
    same = [await ended(rows, 40) for _ in range(5)]
    await rows.database.execute("UPDATE kickoffs SET finished_at = (SELECT min(finished_at) FROM kickoffs)")
    await retaining(rows, at_once=2).remove_what_is_over()
    assert [await count(rows, "events", kickoff) for kickoff in same] == [0] * 5


async def test_what_was_stopped_half_way_is_finished_the_next_time(rows: Rows) -> None:
    over = await ended(rows, 100)
    await RetentionStore(rows.database, rows_at_once=2).drop_rows("events", [over])
    assert await count(rows, "events", over) == EVENTS - 2
    await retaining(rows).remove_what_is_over()
    assert await left(rows, over) == NOTHING


async def test_events_that_are_gone_are_not_looked_for_again(rows: Rows) -> None:
    await ended(rows, 40)
    store = RetentionStore(rows.database)
    await retaining(rows).remove_what_is_over()
    done = await store.progress(rows.deployment.id, "events")
    assert (await store.ended(rows.deployment.id, 30, after=done)).kickoffs == []
    later = await ended(rows, 35)
    await retaining(rows).remove_what_is_over()
    assert await count(rows, "events", later) == 0


async def test_a_longer_time_counts_from_now_on_and_a_shorter_one_at_once(rows: Rows) -> None:
    one = await ended(rows, 20)
    await retaining(rows, Retention(90, 30, 30)).remove_what_is_over()
    assert await left(rows, one) == WHOLE
    await retaining(rows, Retention(90, 10, 30)).remove_what_is_over()
    assert await left(rows, one) == WHOLE | {"events": 0}


async def test_entries_of_the_audit_log_are_removed_in_steps_when_they_are_too_old(rows: Rows) -> None:
    entry = "INSERT INTO audit_log (id, at, action, target) VALUES (%(id)s, %(at)s, 'token.create', 'x')"
    ages = [timedelta(days=days) for days in (1, 9, 11, 12, 13, 400)]
    for age in ages:
        at = datetime.now(UTC) - age
        await rows.database.execute(entry, {"id": UUID(int=first_id(at, timedelta()).int + 1), "at": at})
    await retaining(rows).remove_what_is_over()
    assert len(await rows.database.rows("SELECT 1 FROM audit_log")) == len(ages)
    await retaining(rows, rows_at_once=2, audit=10.0).remove_what_is_over()
    left = await rows.database.rows("SELECT now() - at AS age FROM audit_log ORDER BY at DESC")
    assert [row["age"].days for row in left] == [1, 9]


async def test_rows_without_a_kickoff_are_swept(rows: Rows) -> None:
    kept, gone = [await ended(rows, 1) for _ in range(3)], [await ended(rows, 1) for _ in range(3)]
    await rows.database.execute("DELETE FROM kickoffs WHERE id = ANY (%(ids)s)", {"ids": gone})
    await retaining(rows, seen_at_once=2, rows_at_once=2).sweep_leftovers()
    assert [await left(rows, kickoff) for kickoff in gone] == [NOTHING] * 3
    assert [await left(rows, kickoff) for kickoff in kept] == [WHOLE] * 3


async def test_expired_idempotency_keys_are_forgotten(rows: Rows) -> None:
    brief = KickoffStore(rows.database, idempotency_lasts=timedelta(0))
    await brief.accept([rows.new(key="old")])
    await rows.accept(key="new")
    await retaining(rows).forget_the_expired()
    keys = await rows.database.rows("SELECT key FROM idempotency_keys")
    assert [row["key"] for row in keys] == ["new"]


async def test_workers_that_nobody_has_heard_of_are_forgotten(rows: Rows) -> None:
    silent, alive = new_id(), new_id()
    for worker in (silent, alive):
        await rows.store.workers.seen(worker, slots=1, lease=10)
    await rows.database.execute("UPDATE workers SET seen_at = 'epoch' WHERE id = %(id)s", {"id": silent})
    await retaining(rows).forget_the_expired()
    assert [row["id"] for row in await rows.database.rows("SELECT id FROM workers")] == [alive]


async def test_ended_kickoffs_are_found_by_an_index(rows: Rows) -> None:
    await rows.database.execute(
        "INSERT INTO kickoffs (id, deployment_id, version_id, inputs, state, finished_at) "
        "SELECT gen_random_uuid(), %(deployment)s, %(deployment)s, '{}', 'SUCCESS', "
        "now() - number * interval '1 minute' FROM generate_series(1, 20000) AS number",
        {"deployment": rows.deployment.id},
    )
    await rows.database.execute("ANALYZE kickoffs")
    plan = await rows.database.rows(
        "EXPLAIN SELECT finished_at FROM kickoffs WHERE deployment_id = %(deployment)s AND finished_at > 'epoch' "
        "AND finished_at < now() - interval '10 days' ORDER BY finished_at LIMIT 200",
        {"deployment": rows.deployment.id},
    )
    assert "kickoffs_finished" in str(plan)
    assert "Sort" not in str(plan)

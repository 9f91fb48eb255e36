from __future__ import annotations

import asyncio
import json
from datetime import timedelta

from psycopg import AsyncClientCursor

from lifecycle.waiting import until
from store.kickoff_rows import TASKS, Rows, manifest
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.states import State
from windlass.kickoffs.tasks import TaskRecords
from windlass.store.claiming import SQL
from windlass.store.deployments import DeploymentStore
from windlass_child.protocol.messages import TaskStarted


async def test_a_claimed_kickoff_comes_with_what_its_run_needs(rows: Rows) -> None:
    (kickoff,) = await rows.accept(inputs='{"topic":"tides"}')
    (claimed,) = await rows.claim()
    assert (claimed.id, claimed.attempt, claimed.inputs) == (kickoff, 1, {"topic": "tides"})
    assert (claimed.slug, claimed.source, claimed.manifest) == ("work", {"kind": "function"}, manifest())
    status = await rows.status(kickoff)
    assert status.state is State.STARTED
    assert status.started_at is not None


async def test_the_oldest_are_claimed_first_as_many_as_there_are_slots(rows: Rows) -> None:
    kickoffs = await rows.accept(5)
    first = {claimed.id for claimed in await rows.claim(slots=2)}
    rest = {claimed.id for claimed in await rows.claim(slots=9)}
    assert (first, rest) == (set(kickoffs[:2]), set(kickoffs[2:]))
    assert await rows.claim(slots=9) == []


async def test_a_kickoff_that_this_version_can_not_read_stops_no_other(rows: Rows) -> None:
    newer, other = await rows.accept(2)
    await rows.database.execute(
        "UPDATE kickoffs SET limits = %(limits)s WHERE id = %(id)s", {"limits": '{"from_next_year": 1}', "id": newer}
    )
    assert [claimed.id for claimed in await rows.claim(slots=9)] == [other]
    assert (await rows.status(newer)).state is State.STARTED, "until its lease ends"


async def test_two_workers_at_once_never_have_the_same(rows: Rows) -> None:
    kickoffs = await rows.accept(60)
    workers = [new_id() for _ in range(4)]
    claims = await asyncio.gather(*(rows.claim(slots=7, worker=worker) for worker in workers * 3))
    claimed = [one.id for claim in claims for one in claim]
    assert sorted(claimed) == kickoffs


async def test_a_row_that_somebody_else_holds_is_passed_over(rows: Rows) -> None:
    first, second = await rows.accept(2)
    async with rows.database.transaction() as other:
        await other.execute("SELECT FROM kickoffs WHERE id = %s FOR UPDATE", (first,))
        assert [claimed.id for claimed in await rows.claim(slots=9)] == [second]


async def test_the_task_records_are_written_at_the_claim(rows: Rows) -> None:
    (kickoff,) = await rows.accept()
    assert await rows.tasks(kickoff) is None
    await rows.claim()
    found = [(task["task_id"], task["key"], task["name"], task["agent"]) for task in await rows.tasks(kickoff)]
    assert found == [("plan", "aa", "plan", "Guide"), ("bb", "bb", None, None)]
    assert {task["state"] for task in await rows.tasks(kickoff)} == {"pending_run"}


async def test_a_second_attempt_begins_with_fresh_task_records(rows: Rows) -> None:
    claimed = await rows.started()
    records = TaskRecords(claimed.manifest.tasks)
    records.start(TaskStarted(0, "aa", "plan", None, 1.0))
    records.start(TaskStarted(2, "extra", None, None, 1.0))
    await rows.write(claimed, records)
    await rows.requeue(claimed)
    await rows.come_due()
    (again,) = await rows.claim()
    assert again.attempt == 2
    assert [(task["task_id"], task["state"]) for task in await rows.tasks(claimed.id)] == [
        ("plan", "pending_run"),
        ("bb", "pending_run"),
    ]


async def test_each_kickoff_is_of_the_version_that_was_current_when_it_was_accepted(rows: Rows) -> None:
    (old,) = await rows.accept()
    newer = manifest([*TASKS, {"key": "cc", "name": "third", "agent": None}])
    await DeploymentStore(rows.database).register("work", digest="e", source={"kind": "function"}, manifest=newer)
    await rows.claim()
    assert len(await rows.tasks(old)) == 2


async def test_a_crew_without_tasks_has_no_records(rows: Rows) -> None:
    rows = await Rows.make(rows.database, tasks=[])
    claimed = await rows.started()
    status = await rows.status(claimed.id)
    assert (status.tasks, status.total_tasks) == (None, 0)


async def test_the_time_of_the_first_start_stays(rows: Rows) -> None:
    claimed = await rows.started()
    began = (await rows.status(claimed.id)).started_at
    await rows.requeue(claimed)
    await rows.come_due()
    (again,) = await rows.claim()
    assert again.ran_for > 0
    assert (await rows.status(claimed.id)).started_at == began


async def test_only_its_own_leases_are_renewed(rows: Rows) -> None:
    claimed = await rows.started()
    stranger = new_id()
    assert await rows.store.renew(stranger, [claimed.id], 600.0) == {}
    before = await rows.column(claimed.id, "lease_until")
    assert await rows.store.renew(rows.worker, [claimed.id, new_id()], 600.0) == {(claimed.id, 1): False}
    assert (await rows.column(claimed.id, "lease_until") - before).total_seconds() > 500


async def test_a_lease_whose_row_is_locked_is_not_waited_for(rows: Rows) -> None:
    locked, free = await rows.started(), await rows.started()
    before = await rows.column(locked.id, "lease_until")
    async with rows.database.transaction() as connection:
        await connection.execute("SELECT FROM kickoffs WHERE id = %(id)s FOR SHARE", {"id": locked.id})
        renewed = await rows.store.renew_unlocked(rows.worker, [locked.id, free.id, new_id()], 600.0)
    assert renewed == {(locked.id, 1): None, (free.id, 1): False}
    assert await rows.column(locked.id, "lease_until") == before
    assert (await rows.column(free.id, "lease_until") - before).total_seconds() > 500
    assert await rows.store.renew_unlocked(new_id(), [free.id], 600.0) == {}


async def test_what_is_not_named_is_not_renewed(rows: Rows) -> None:
    claimed, other = await rows.started(), await rows.started()
    before = await rows.column(other.id, "lease_until")
    await rows.store.renew(rows.worker, [claimed.id], 600.0)
    assert await rows.column(other.id, "lease_until") == before


async def test_a_kickoff_that_ended_has_no_lease_to_renew(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.settle(claimed)
    assert await rows.store.renew(rows.worker, [claimed.id], 60.0) == {}
    assert await rows.column(claimed.id, "lease_until") is None


async def test_a_kickoff_that_was_claimed_again_by_the_same_worker_is_told_by_its_attempt(rows: Rows) -> None:
    claimed = await rows.silent()
    await rows.store.reap(max_losses=3)
    await rows.claim()
    assert await rows.store.renew(rows.worker, [claimed.id], 60.0) == {(claimed.id, 2): False}


async def test_a_worker_that_stops_in_the_middle_of_a_claim_holds_up_nobody(rows: Rows) -> None:
    large = '{"text": "' + "x" * 1_000_000 + '"}'
    await rows.accept(8, inputs=large)
    async with rows.database.connection() as connection:
        cursor = AsyncClientCursor(connection)
        values = {
            "worker": new_id(),
            "host": "here",
            "slots": 4,
            "lease": timedelta(seconds=60),
            "only": None,
            "ended": [],
            "recent": [],
            "excluded": [],
        }
        message = cursor.mogrify(SQL["claim"].as_string(), values)
        connection.pgconn.send_query(message.encode())
        connection.pgconn.flush()  # and it never reads the answer

        async def theirs_are_claimed() -> bool:
            return len(await rows.database.rows("SELECT FROM kickoffs WHERE state = 'STARTED'")) == 4

        await until(theirs_are_claimed)
        async with asyncio.timeout(60):
            assert len(await rows.claim(slots=9)) == 4
        await connection.close()


async def test_what_is_claimed_is_read_whole_whether_it_is_small_or_large(rows: Rows) -> None:
    """Large, many, and large only after decompression: some are read by a second statement."""
    texts = ["small", "x" * 500_000, *(f"{number}" + "é" * 3000 for number in range(12)), "\x00 \ud800"]
    accepted = [(await rows.accept(inputs=json.dumps({"text": text})))[0] for text in texts]
    claimed = await rows.claim(slots=20)
    assert [one.id for one in claimed] == sorted(accepted)
    assert [one.inputs["text"] for one in claimed] == texts
    assert {one.attempt for one in claimed} == {1}
    assert {one.deployment_id for one in claimed} == {rows.deployment.id}


async def test_a_claim_does_not_expand_inputs_that_are_compressed(rows: Rows) -> None:
    await rows.accept(inputs=json.dumps({"text": "x" * 500_000}))
    values = {"worker": rows.worker, "host": "here", "slots": 9, "lease": timedelta(seconds=60)}
    found = await rows.database.rows(SQL["claim"], {**values, "only": None, "ended": [], "recent": [], "excluded": []})
    assert [one["content"] for one in found] == [None]


async def test_a_lease_counts_from_the_claim_not_from_the_wait_for_another_one(rows: Rows) -> None:
    (kickoff,) = await rows.accept()
    async with rows.database.transaction() as other:
        await other.execute("SELECT pg_advisory_xact_lock(hashtextextended('claim', 0))")
        claiming = asyncio.create_task(rows.store.claim(rows.worker, 1, 1.0))
        waits = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while not await rows.database.rows(waits):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)
        released = await rows.database.row("SELECT clock_timestamp() AS at")
    await claiming
    row = await rows.database.row("SELECT id, lease_until FROM kickoffs")
    assert row
    assert released
    assert row["id"] == kickoff
    assert row["lease_until"] >= released["at"] + timedelta(seconds=1)

"""Of the kickoffs with one concurrency key, one runs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from store.kickoff_rows import DONE, FAILED
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.outcome import SUPERSEDED
from windlass.kickoffs.states import State
from windlass.store.accepting import Holder

if TYPE_CHECKING:
    from uuid import UUID

    from store.kickoff_rows import Rows

SOON = timedelta(hours=1)


async def keyed(rows: Rows, count: int = 1, key: str = "k", **fields: object) -> list[UUID]:
    return await rows.accept(count, concurrency_key=key, **fields)


async def test_one_of_a_key_runs_at_a_time_in_the_order_of_their_coming(rows: Rows) -> None:
    first, second, third = await keyed(rows, 3)
    for kickoff in (first, second, third):
        (claimed,) = await rows.claim(slots=9)
        assert (claimed.id, claimed.concurrency_key) == (kickoff, "k")
        assert await rows.claim(slots=9) == []
        await rows.settle(claimed)


async def test_a_higher_priority_has_the_next_turn(rows: Rows) -> None:
    await keyed(rows)
    (claimed,) = await rows.claim()
    (low,), (high,) = await keyed(rows), await keyed(rows, priority=5)
    await rows.settle(claimed)
    assert await rows.claimed_ids(slots=9) == [high]
    assert await rows.column(low, "ready") is False


async def test_other_keys_and_kickoffs_without_one_are_not_held_up(rows: Rows) -> None:
    await keyed(rows, 2)
    other, (bare,) = await keyed(rows, key="other"), await rows.accept()
    elsewhere = await (await rows.beside("elsewhere")).accept(concurrency_key="k")
    assert {*other, bare, *elsewhere} < set(await rows.claimed_ids(slots=9))


async def test_servers_that_accept_at_once_do_not_make_two_run(rows: Rows) -> None:
    await asyncio.gather(*(rows.store.accept([rows.new(concurrency_key="k")]) for _ in range(20)))
    claims = await asyncio.gather(*(rows.claim(slots=4, worker=new_id()) for _ in range(8)))
    assert sum(map(len, claims)) == 1


async def test_all_of_a_key_are_run_though_servers_accept_while_others_end(rows: Rows) -> None:
    async def run() -> int:
        claimed = await rows.claim()
        assert len(claimed) <= 1
        return len([one for one in claimed if await rows.settle(one)])

    ended = 0
    for _ in range(15):
        _, one, other = await asyncio.gather(rows.store.accept([rows.new(concurrency_key="k")]), run(), run())
        ended += one + other
    async with asyncio.timeout(60):
        while ended < 15:
            await rows.store.promote()
            ended += await run()
    assert await rows.database.rows("SELECT FROM kickoffs WHERE state <> 'SUCCESS'") == []


@pytest.mark.parametrize("end", ["settled", "stopped", "put back", "reaped", "released and stopped"])
async def test_however_one_ends_the_next_has_its_turn(rows: Rows, end: str) -> None:
    await keyed(rows)
    (claimed,) = await rows.claim()
    (behind,) = await keyed(rows)
    if end == "settled":
        await rows.settle(claimed, FAILED)
    elif end == "put back":
        await rows.requeue(claimed)
    elif end == "reaped":
        await rows.end_leases()
        await rows.store.reap(max_losses=0)
    else:
        await rows.store.stop(claimed.id)
        await rows.store.release(rows.worker)
    assert await rows.claimed_ids(slots=9) == [behind]


async def test_when_one_that_waits_is_stopped_the_one_that_runs_is_not_joined(rows: Rows) -> None:
    await keyed(rows)
    (running,) = await rows.claim()
    first, second = await keyed(rows, 2)
    await rows.store.stop(first)
    assert await rows.claim(slots=9) == []
    await rows.settle(running)
    assert await rows.claimed_ids(slots=9) == [second]


async def test_when_the_one_whose_turn_it_is_is_stopped_the_next_has_it_at_once(rows: Rows) -> None:
    first, second = await keyed(rows, 2)
    await rows.store.stop(first)
    assert await rows.claimed_ids(slots=9) == [second]


async def test_one_whose_time_comes_waits_for_its_turn(rows: Rows) -> None:
    (later,) = await keyed(rows, run_at=datetime.now(UTC) + SOON)
    await keyed(rows)
    (running,) = await rows.claim(slots=9)
    await rows.come_due()
    assert await rows.claim(slots=9) == []
    await rows.settle(running)
    assert await rows.claimed_ids(slots=9) == [later]


async def test_one_whose_time_lies_ahead_holds_up_nobody(rows: Rows) -> None:
    await keyed(rows, run_at=datetime.now(UTC) + SOON)
    (now,) = await keyed(rows)
    assert await rows.claimed_ids(slots=9) == [now]


async def test_free_keys_are_looked_for_a_page_at_a_time(rows: Rows) -> None:
    for number in range(5):
        await keyed(rows, key=f"key {number}")
    async with rows.database.transaction() as connection:
        await connection.execute("ALTER TABLE kickoffs DISABLE TRIGGER kickoff_moved")  # the turn is given to nobody
        await connection.execute("UPDATE kickoffs SET ready = false")
        await connection.execute("ALTER TABLE kickoffs ENABLE TRIGGER kickoff_moved")
    counts, last = [], (rows.deployment.id, "")
    for _ in range(3):
        turn = await rows.store.promote(last, limit=2)
        counts.append(turn.count)
        last = turn.last
    assert counts == [2, 2, 1]
    assert last[1] == ""


async def test_reject_refuses_while_another_of_the_key_is_open(rows: Rows) -> None:
    (first,) = await keyed(rows)
    second = rows.new(concurrency_key="k", concurrency_strategy="reject")
    other = rows.new(concurrency_key="free", concurrency_strategy="reject")
    answer = await rows.store.accept([second, other])
    assert (answer.ids, answer.taken) == ({other.id}, {second.id: Holder(first, None)})
    (claimed,) = [one for one in await rows.claim(slots=9) if one.id == first]
    assert (await rows.store.accept([second])).taken == {second.id: Holder(first, None)}
    await rows.settle(claimed)
    assert (await rows.store.accept([second])).ids == {second.id}


async def test_of_servers_that_would_not_queue_one_gets_the_key(rows: Rows) -> None:
    many = [rows.new(concurrency_key="k", concurrency_strategy="reject") for _ in range(12)]
    answers = await asyncio.gather(*(rows.store.accept([new]) for new in many))
    (winner,) = [kickoff for answer in answers for kickoff in answer.ids]
    assert {holder for answer in answers for holder in answer.taken.values()} == {Holder(winner, None)}


async def test_the_strategy_is_the_deployments_unless_the_kickoff_says_another(rows: Rows) -> None:
    strict = await rows.beside("strict", concurrency_strategy="reject")
    (first,) = await strict.accept(concurrency_key="k")
    refused = strict.new(concurrency_key="k")
    assert (await strict.store.accept([refused])).taken == {refused.id: Holder(first, None)}
    await strict.accept(concurrency_key="k", concurrency_strategy="enqueue")


async def test_cancel_running_ends_what_waits_and_stops_what_runs(rows: Rows) -> None:
    await keyed(rows)
    (running,) = await rows.claim()
    (waiting,) = await keyed(rows)
    (later,) = await keyed(rows, run_at=datetime.now(UTC) + SOON)
    bystander = await rows.started()
    (newest,) = await keyed(rows, concurrency_strategy="cancel_running")
    for kickoff in (waiting, later):
        status = await rows.status(kickoff)
        assert (status.state, status.reason, status.error) == (State.CANCELLED, "cancelled", SUPERSEDED)
        assert [task["state"] for task in await rows.tasks(kickoff)] == ["skipped", "skipped"]
    renewed = await rows.store.renew(rows.worker, [running.id, bystander.id], 60.0)
    assert renewed == {(running.id, 1): True, (bystander.id, 1): False}
    assert await rows.claim(slots=9) == []
    await rows.settle(running, DONE)
    assert await rows.claimed_ids(slots=9) == [newest]


async def test_the_one_that_took_the_place_is_ready_when_nothing_ran(rows: Rows) -> None:
    await keyed(rows, 3)
    (newest,) = await keyed(rows, concurrency_strategy="cancel_running")
    assert await rows.claimed_ids(slots=9) == [newest]


async def test_of_newer_ones_that_come_at_once_one_stays(rows: Rows) -> None:
    many = [rows.new(concurrency_key="k", concurrency_strategy="cancel_running") for _ in range(10)]
    await asyncio.gather(*(rows.store.accept([new]) for new in many))
    states = [(await rows.status(new.id)).state for new in many]
    assert sorted(states) == [State.CANCELLED] * 9 + [State.PENDING]
    assert len(await rows.claim(slots=9)) == 1


async def test_a_request_that_is_repeated_cancels_and_refuses_nothing(rows: Rows) -> None:
    first = rows.new(key="a", concurrency_key="k", concurrency_strategy="cancel_running")
    again = rows.new(key="a", concurrency_key="k", concurrency_strategy="cancel_running")
    await rows.store.accept([first])
    answer = await rows.store.accept([again])
    assert (answer.ids, answer.taken, answer.full) == (set(), {}, {})
    assert (await rows.status(first.id)).state is State.PENDING

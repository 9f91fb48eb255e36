"""Which kickoffs are claimed, of those that wait: fair shares, caps, priorities, times, pauses."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from store.kickoff_rows import LEASE
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.states import State
from windlass.store.deployments import DeploymentStore

if TYPE_CHECKING:
    from uuid import UUID

    from store.kickoff_rows import Rows

SOON = timedelta(hours=1)


async def test_a_higher_priority_goes_first_and_age_decides_among_equals(rows: Rows) -> None:
    low, first, second, high = [(await rows.accept(priority=number))[0] for number in (-5, 0, 0, 7)]
    order = [(await rows.claimed_ids())[0] for _ in range(4)]
    assert order == [high, first, second, low]


async def test_a_kickoff_with_limits_of_its_own_brings_them(rows: Rows) -> None:
    claimed = await rows.started(limits='{"timeout": 60, "token_limit": 1000}')
    assert claimed.limits == Limits(timeout=60, token_limit=1000)
    assert (claimed.ran_for, claimed.isolated, claimed.concurrency_key, claimed.stop_requested) == (
        0,
        False,
        None,
        False,
    )


async def test_a_deployment_runs_no_more_at_once_than_it_may(rows: Rows) -> None:
    capped = await rows.beside("capped", concurrency=2)
    await capped.accept(5)
    claimed = await capped.claim(slots=9)
    assert len(claimed) == 2
    assert await capped.claim(slots=9) == []
    await capped.settle(claimed[0])
    assert len(await capped.claim(slots=9)) == 1


async def test_a_cap_holds_over_all_workers_that_claim_at_once(rows: Rows) -> None:
    capped = await rows.beside("capped", concurrency=3)
    await capped.accept(40)
    claims = await asyncio.gather(*(capped.claim(slots=4, worker=new_id()) for _ in range(10)))
    assert sum(map(len, claims)) == 3


async def test_a_full_deployment_does_not_hold_up_another(rows: Rows) -> None:
    capped = await rows.beside("capped", concurrency=1)
    await capped.accept(20)
    others = await rows.accept(2)
    claimed = await rows.claim(slots=3)
    assert len(claimed) == 3
    assert {one.id for one in claimed if one.slug == "work"} == set(others)


async def test_deployments_share_the_slots_fairly_however_much_of_one_waits(rows: Rows) -> None:
    await rows.accept(50)
    other = await rows.beside("other")
    await other.accept(5)
    assert sorted(one.slug for one in await rows.claim(slots=4)) == ["other", "other", "work", "work"]


async def test_what_runs_already_counts_in_the_shares(rows: Rows) -> None:
    await rows.accept(50)
    await rows.claim(slots=3)
    other = await rows.beside("other")
    await other.accept(5)
    assert [one.slug for one in await rows.claim(slots=3)] == ["other"] * 3


async def test_a_deployment_of_twice_the_weight_gets_twice_the_slots(rows: Rows) -> None:
    await rows.accept(20)
    heavy = await rows.beside("heavy", weight=2)
    await heavy.accept(20)
    slugs = [one.slug for one in await rows.claim(slots=9)]
    assert (slugs.count("heavy"), slugs.count("work")) == (6, 3)


async def test_more_deployments_than_slots_have_their_turns(rows: Rows) -> None:
    many = [await rows.beside(f"crew-{number}") for number in range(6)]
    for one in many:
        await one.accept(3)
    turns = [await rows.claim(slots=2) for _ in range(3)]
    assert {one.slug for turn in turns for one in turn} == {f"crew-{number}" for number in range(6)}


async def test_ended_runs_that_are_not_settled_yet_count_in_no_share(rows: Rows) -> None:
    await rows.accept(50)
    other = await rows.beside("other")
    await other.accept(5)
    claimed = await rows.claim(slots=4)
    for slug in ("other", "work"):
        ended = [one.id for one in claimed if one.slug == slug][:1]
        (next_one,) = await rows.store.claim(rows.worker, 1, LEASE, ended=ended)
        assert next_one.slug == slug
        claimed.append(next_one)
        await rows.settle(next(one for one in claimed if one.id in ended))


async def test_ended_runs_that_are_not_settled_yet_count_in_the_concurrency(rows: Rows) -> None:
    capped = await rows.beside("capped", concurrency=2)
    await capped.accept(5)
    ended = [one.id for one in await capped.claim(slots=2)]
    assert await rows.store.claim(rows.worker, 2, LEASE, ended=ended) == []


async def test_of_deployments_with_equal_shares_the_one_that_started_least_recently_is_next(rows: Rows) -> None:
    await rows.accept(5)
    first, second = await rows.beside("first"), await rows.beside("second")
    await first.accept(2)
    await second.accept(2)
    recent = [rows.deployment.id, first.deployment.id]
    assert [one.slug for one in await rows.store.claim(rows.worker, 1, LEASE, recent=recent)] == ["second"]
    claimed = await rows.store.claim(rows.worker, 4, LEASE, recent=[*recent, second.deployment.id])
    assert sorted(one.slug for one in claimed) == ["first", "first", "work", "work"]


async def test_a_deployment_that_can_start_nothing_takes_no_turn_from_others(rows: Rows) -> None:
    stuck = await rows.beside("stuck")
    await stuck.started(concurrency_key="k")
    # ready in spite of its key, as when two servers accept at once
    (behind,) = await stuck.accept(concurrency_key="k")
    await rows.database.execute("UPDATE kickoffs SET ready = true WHERE id = %(id)s", {"id": behind})
    await rows.accept(3)
    await rows.claim(slots=2)
    assert [one.slug for one in await rows.claim(slots=1)] == ["work"]


async def test_none_of_a_paused_deployment_is_claimed_until_it_is_resumed(rows: Rows) -> None:
    store = DeploymentStore(rows.database)
    running = await rows.started()
    (waiting,) = await rows.accept()
    assert await store.pause("work")
    assert await store.pause("work")
    assert await rows.claim(slots=9) == []
    assert await rows.settle(running)
    assert await store.resume("work")
    assert await store.resume("work")
    assert await rows.claimed_ids(slots=9) == [waiting]


async def test_nobody_can_be_paused_or_resumed_that_is_not_there(rows: Rows) -> None:
    store = DeploymentStore(rows.database)
    assert not await store.pause("nobody")
    assert not await store.resume("nobody")


async def test_a_kickoff_waits_for_its_time(rows: Rows) -> None:
    (later,) = await rows.accept(run_at=datetime.now(UTC) + SOON)
    assert await rows.claim(slots=9) == []
    assert (await rows.store.promote()).count == 0
    await rows.come_due()
    assert await rows.claimed_ids(slots=9) == [later]


async def test_a_time_that_is_over_is_now(rows: Rows) -> None:
    (now,) = await rows.accept(run_at=datetime.now(UTC) - SOON)
    assert await rows.claimed_ids() == [now]


async def test_what_comes_due_is_made_ready_a_page_at_a_time(rows: Rows) -> None:
    await rows.accept(5, run_at=datetime.now(UTC) + SOON)
    await rows.database.execute("UPDATE kickoffs SET run_at = now()")
    assert [(await rows.store.promote(limit=2)).count for _ in range(4)] == [2, 2, 1, 0]
    assert len(await rows.claim(slots=9)) == 5


async def pause(rows: Rows, kickoff: UUID) -> float:
    """Seconds from the end of its last attempt to the next one."""
    (last,) = (await rows.store.attempts(kickoff))[-1:]
    assert last.ended_at
    return float((await rows.column(kickoff, "run_at") - last.ended_at).total_seconds())


async def test_a_kickoff_that_was_lost_waits_longer_each_time(rows: Rows) -> None:
    (kickoff,) = await rows.accept()
    for least, most in [(0.8, 1.2), (1.6, 2.4), (3.2, 4.8)]:
        (claimed,) = await rows.claim()
        assert await rows.requeue(claimed, max_losses=9) is State.PENDING
        assert await rows.claim() == []
        assert least <= await pause(rows, kickoff) <= most
        await rows.come_due()


async def test_a_kickoff_that_was_lost_often_waits_a_minute(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.database.execute("UPDATE kickoffs SET losses = 500")
    await rows.requeue(claimed, max_losses=1000)
    assert 48 <= await pause(rows, claimed.id) <= 72

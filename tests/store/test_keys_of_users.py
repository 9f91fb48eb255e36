"""A concurrency key is one for all users of a crew; whom a newer kickoff supersedes depends on who asks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from windlass.kickoffs.ids import new_id
from windlass.kickoffs.states import State
from windlass.store.accepting import Holder

if TYPE_CHECKING:
    from uuid import UUID

    from store.kickoff_rows import Rows

ALICE, BOB = new_id(), new_id()


async def keyed(rows: Rows, user: UUID | None, strategy: str | None = None, **fields: Any) -> UUID:
    (kickoff,) = await rows.accept(user_id=user, concurrency_key="k", concurrency_strategy=strategy, **fields)
    return kickoff


async def state(rows: Rows, kickoff: UUID) -> State:
    return (await rows.status(kickoff)).state


async def ask_to_stop(rows: Rows, kickoff: UUID) -> bool:
    return await rows.column(kickoff, "stop_requested_at") is not None


async def test_one_of_a_key_runs_at_a_time_over_all_users(rows: Rows) -> None:
    for user in (ALICE, BOB, None):
        await keyed(rows, user)
    assert len(await rows.claim(slots=9)) == 1


@pytest.mark.parametrize("other", [ALICE, None])
async def test_a_user_supersedes_nobody_elses_run_and_waits_for_it(rows: Rows, other: UUID | None) -> None:
    running = await keyed(rows, other)
    (claimed,) = await rows.claim()
    newer = await keyed(rows, BOB, "cancel_running")
    assert not await ask_to_stop(rows, running)
    assert await rows.claim(slots=9) == []
    await rows.settle(claimed)
    assert await rows.claimed_ids(slots=9) == [newer]


@pytest.mark.parametrize("other", [ALICE, None])
async def test_a_user_supersedes_nobody_elses_waiting_kickoff_and_goes_behind_it(
    rows: Rows, other: UUID | None
) -> None:
    first = await keyed(rows, other)
    later = await keyed(rows, other, run_at=datetime.now(UTC) + timedelta(hours=1))
    newer = await keyed(rows, BOB, "cancel_running")
    assert [await state(rows, kickoff) for kickoff in (first, later, newer)] == [State.PENDING] * 3
    (claimed,) = await rows.claim(slots=9)
    assert claimed.id == first
    await rows.settle(claimed)
    assert await rows.claimed_ids(slots=9) == [newer]


async def test_a_user_supersedes_all_of_their_own(rows: Rows) -> None:
    running = await keyed(rows, BOB)
    (claimed,) = await rows.claim()
    waiting = await keyed(rows, BOB)
    newer = await keyed(rows, BOB, "cancel_running")
    assert await ask_to_stop(rows, running)
    assert await state(rows, waiting) is State.CANCELLED
    await rows.settle(claimed)
    assert await rows.claimed_ids(slots=9) == [newer]


async def test_the_place_of_a_users_superseded_kickoff_goes_to_who_waits_longest(rows: Rows) -> None:
    own, others = await keyed(rows, BOB), await keyed(rows, ALICE)
    newer = await keyed(rows, BOB, "cancel_running")
    assert await state(rows, own) is State.CANCELLED
    (claimed,) = await rows.claim(slots=9)
    assert claimed.id == others
    await rows.settle(claimed)
    assert await rows.claimed_ids(slots=9) == [newer]


async def test_the_organization_supersedes_everybodys(rows: Rows) -> None:
    running = await keyed(rows, ALICE)
    (claimed,) = await rows.claim()
    waiting = [await keyed(rows, user) for user in (BOB, None)]
    newer = await keyed(rows, None, "cancel_running")
    assert await ask_to_stop(rows, running)
    assert [await state(rows, kickoff) for kickoff in waiting] == [State.CANCELLED] * 2
    await rows.settle(claimed)
    assert await rows.claimed_ids(slots=9) == [newer]


async def test_a_strategy_of_the_deployment_reaches_no_further_for_a_user(rows: Rows) -> None:
    newest = await rows.beside("newest", concurrency_strategy="cancel_running")
    own, others = await keyed(newest, BOB), await keyed(newest, ALICE)
    await keyed(newest, BOB)
    assert [await state(newest, kickoff) for kickoff in (own, others)] == [State.CANCELLED, State.PENDING]


async def test_of_newer_ones_of_two_users_that_come_at_once_one_of_each_stays_and_one_runs(rows: Rows) -> None:
    many = [
        rows.new(user_id=user, concurrency_key="k", concurrency_strategy="cancel_running") for user in [ALICE, BOB] * 5
    ]
    await asyncio.gather(*(rows.store.accept([new]) for new in many))
    left = [new.user_id for new in many if await state(rows, new.id) is State.PENDING]
    assert sorted(left, key=str) == sorted([ALICE, BOB], key=str)
    (claimed,) = await rows.claim(slots=9)
    await rows.settle(claimed)
    assert len(await rows.claim(slots=9)) == 1


async def test_a_refusal_tells_who_started_the_one_that_has_the_key(rows: Rows) -> None:
    first = await keyed(rows, ALICE)
    refused = rows.new(user_id=BOB, concurrency_key="k", concurrency_strategy="reject")
    assert (await rows.store.accept([refused])).taken == {refused.id: Holder(first, ALICE)}

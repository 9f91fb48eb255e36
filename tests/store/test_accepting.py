from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from windlass.kickoffs.ids import new_id
from windlass.kickoffs.states import State
from windlass.store.accepting import Reserved
from windlass.store.kickoffs import KickoffStore

if TYPE_CHECKING:
    from store.kickoff_rows import Rows


async def test_a_batch_is_accepted_as_a_whole(rows: Rows) -> None:
    batch = [rows.new(), rows.new(key="a"), rows.new()]
    assert (await rows.store.accept(batch)).ids == {new.id for new in batch}
    found = await rows.store.statuses([new.id for new in batch])
    assert [found[new.id].state for new in batch] == [State.PENDING] * 3


async def test_what_was_given_is_kept(rows: Rows) -> None:
    user = new_id()
    new = rows.new(user_id=user, inputs='{"b":1,"a":"\\u0000"}', meta='[1, {"x":null}]', warnings='[{"code":"c"}]')
    await rows.store.accept([new])
    status = await rows.status(new.id)
    assert (status.user_id, status.meta, status.warnings) == (user, '[1, {"x":null}]', '[{"code":"c"}]')
    assert (status.deployment_id, status.version_id) == (rows.deployment.id, rows.version.id)
    (claimed,) = await rows.claim()
    assert list(claimed.inputs.items()) == [("b", 1), ("a", "\x00")]


async def test_half_a_surrogate_pair_in_the_inputs_reaches_the_crew(rows: Rows) -> None:
    await rows.accept(inputs='{"a":"\\ud800"}')
    (claimed,) = await rows.claim()
    assert claimed.inputs == {"a": "\ud800"}


async def test_a_row_that_cannot_be_kept_keeps_the_whole_batch_out(rows: Rows) -> None:
    good, bad = rows.new(), rows.new(inputs="{")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        await rows.store.accept([good, bad])
    assert await rows.store.statuses([good.id, bad.id]) == {}


async def test_a_kickoff_with_a_key_that_is_taken_is_missing_from_the_answer(rows: Rows) -> None:
    first, second, other = rows.new(key="a"), rows.new(key="a"), rows.new(key="b")
    assert (await rows.store.accept([first])).ids == {first.id}
    assert (await rows.store.accept([second, other])).ids == {other.id}
    assert second.reservation is not None
    assert await rows.store.reserved(second.reservation) == Reserved(first.id, b"digest")
    assert second.id not in await rows.store.statuses([second.id])


async def test_a_key_that_nobody_used_stands_for_nothing(rows: Rows) -> None:
    reservation = rows.new(key="a").reservation
    assert reservation is not None
    assert await rows.store.reserved(reservation) is None


async def test_a_key_belongs_to_the_user_who_sent_it(rows: Rows) -> None:
    mine, theirs = rows.new(key="a", user_id=new_id()), rows.new(key="a", user_id=new_id())
    nobodys = rows.new(key="a")
    assert (await rows.store.accept([mine, theirs, nobodys])).ids == {mine.id, theirs.id, nobodys.id}


async def test_a_key_belongs_to_one_deployment(rows: Rows) -> None:
    here, there = rows.new(key="a"), rows.new(key="a", deployment_id=new_id())
    assert (await rows.store.accept([here, there])).ids == {here.id, there.id}


async def test_of_two_at_once_with_one_key_one_is_accepted(rows: Rows) -> None:
    pairs = [(rows.new(key=f"key {number}"), rows.new(key=f"key {number}")) for number in range(10)]
    accepted = await asyncio.gather(*(rows.store.accept([new]) for pair in pairs for new in pair))
    answers = [one.ids for one in accepted]
    assert sum(map(len, answers)) == len(pairs)
    assert {len(answers[at] | answers[at + 1]) for at in range(0, len(answers), 2)} == {1}


@pytest.mark.parametrize("key", "abcdefgh")
async def test_batches_with_the_same_keys_in_another_order_do_not_lock_each_other_up(rows: Rows, key: str) -> None:
    users = [new_id() for _ in range(400)]
    batches = [[rows.new(key=key, user_id=user) for user in order] for order in (users, users[::-1]) * 2]
    answers = await asyncio.gather(*(rows.store.accept(batch) for batch in batches))
    assert sum(len(one.ids) for one in answers) == len(users)


async def test_a_key_is_free_again_when_its_time_is_over(rows: Rows) -> None:
    store = KickoffStore(rows.database, idempotency_lasts=timedelta(0))
    first, second = rows.new(key="a"), rows.new(key="a")
    assert (await store.accept([first])).ids == {first.id}
    assert (await store.accept([second])).ids == {second.id}


async def test_keys_whose_time_is_over_are_forgotten_and_others_are_not(rows: Rows) -> None:
    brief = KickoffStore(rows.database, idempotency_lasts=timedelta(0))
    await brief.accept([rows.new(key=f"brief {number}") for number in range(3)])
    await rows.accept(key="kept")
    assert await rows.store.forget_idempotency_keys(limit=2) == 2
    assert await rows.store.forget_idempotency_keys(limit=2) == 1
    assert [row["key"] for row in await rows.database.rows("SELECT key FROM idempotency_keys")] == ["kept"]

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from windlass.store.accepting import Backlog
from windlass.store.kickoffs import KickoffStore

if TYPE_CHECKING:
    from store.kickoff_rows import Rows


@pytest.fixture
def small(rows: Rows) -> Rows:
    rows.store = KickoffStore(rows.database, max_waiting=4)
    return rows


async def test_of_a_batch_as_many_are_accepted_as_there_is_room_for_in_their_order(small: Rows) -> None:
    batch = [small.new() for _ in range(6)]
    answer = await small.store.accept(batch)
    assert answer.ids == {new.id for new in batch[:4]}
    assert answer.full == {new.id: Backlog(0, 4) for new in batch[4:]}


async def test_a_full_queue_takes_more_when_one_has_left_it(small: Rows) -> None:
    await small.accept(4)
    refused = small.new()
    assert (await small.store.accept([refused])).full == {refused.id: Backlog(4, 4)}
    await small.claim()
    await small.accept()
    assert (await small.store.accept([refused])).full == {refused.id: Backlog(4, 4)}


async def test_what_is_not_ready_waits_too(small: Rows) -> None:
    await small.accept(3, run_at=datetime.now(UTC) + timedelta(hours=1))
    await small.accept(1, concurrency_key="k")
    refused = small.new()
    assert set((await small.store.accept([refused])).full) == {refused.id}


async def test_each_deployment_has_a_bound_of_its_own(small: Rows) -> None:
    larger = await small.beside("larger", max_waiting=7)
    larger.store = small.store
    batch = [one.new() for one in (small, larger) * 9]
    answer = await small.store.accept(batch)
    assert len(answer.ids) == 4 + 7
    assert {backlog.most for backlog in answer.full.values()} == {4, 7}


async def test_a_repeated_request_takes_no_room_and_is_not_refused(small: Rows) -> None:
    first = small.new(key="a")
    await small.store.accept([first, small.new(), small.new()])
    again, last, refused = small.new(key="a"), small.new(), small.new()
    answer = await small.store.accept([again, last, refused])
    assert (answer.ids, set(answer.full)) == ({last.id}, {refused.id})


async def test_a_refused_request_does_not_use_up_its_idempotency_key(small: Rows) -> None:
    await small.accept(4)
    refused = small.new(key="a")
    await small.store.accept([refused])
    assert refused.reservation is not None
    assert await small.store.reserved(refused.reservation) is None


async def test_a_queue_that_fills_up_while_it_is_not_counted_is_counted_in_time(rows: Rows) -> None:
    rows.store = KickoffStore(rows.database, max_waiting=50)
    answers = [await rows.store.accept([rows.new()]) for _ in range(60)]
    assert sum(len(answer.ids) for answer in answers) == 50


async def test_servers_that_accept_at_once_exceed_the_bound_by_little(rows: Rows) -> None:
    async def accepted_by_a_server() -> int:
        server = KickoffStore(rows.database, max_waiting=50)
        return sum([len((await server.accept([rows.new()])).ids) for _ in range(30)])

    assert 50 <= sum(await asyncio.gather(*(accepted_by_a_server() for _ in range(4)))) <= 50 + 50

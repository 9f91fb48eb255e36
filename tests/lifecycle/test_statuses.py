from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from store.kickoff_rows import Rows
from windlass.aio import serving
from windlass.errors import DatabaseUnavailable
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.states import State
from windlass.lifecycle.statuses import Statuses
from windlass.store.database import Database
from windlass.store.listener import Listener
from windlass.store.reading import KickoffStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from store.proxy import Proxy

LONG = 60.0
Waiting = asyncio.Task[KickoffStatus | None]


class WatchedRun:
    def __init__(self, rows: Rows, listener: Listener) -> None:
        self.rows = rows
        self.statuses = Statuses(rows.store, listener)

    async def wait_for_end(self, seconds: float = LONG) -> Waiting:
        """Of a kickoff that has begun; the task waits by now."""
        self.claimed = await self.rows.started()
        waiting: Waiting = asyncio.create_task(self.statuses.get_ended(self.claimed.id, seconds))
        async with asyncio.timeout(60):
            while not self.statuses._ends._waiting:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
        return waiting


@pytest.fixture
async def watched(proxy: Proxy) -> AsyncIterator[WatchedRun]:
    listener = Listener(proxy.url)
    async with Database(proxy.url) as database, serving(listener):
        await asyncio.wait_for(listener.listening.wait(), 60)
        yield WatchedRun(await Rows.make(database), listener)


async def test_kickoffs_are_looked_up_together(watched: WatchedRun) -> None:
    kickoffs = await watched.rows.accept(3)
    found = await asyncio.gather(*map(watched.statuses.get, [*kickoffs, new_id()]))
    assert [status.id if status else None for status in found] == [*kickoffs, None]


async def test_who_waits_for_an_end_is_told_as_it_comes(watched: WatchedRun) -> None:
    waiting = await watched.wait_for_end()
    await watched.rows.settle(watched.claimed)
    status = await asyncio.wait_for(waiting, LONG / 2)
    assert status is not None
    assert status.state is State.SUCCESS
    assert watched.statuses._ends._waiting == {}


async def test_who_has_waited_long_enough_gets_what_there_is(watched: WatchedRun) -> None:
    claimed = await watched.rows.started()
    status = await watched.statuses.get_ended(claimed.id, 0.05)
    assert status is not None
    assert status.state is State.STARTED
    assert watched.statuses._ends._waiting == {}


async def test_what_has_ended_or_never_was_is_not_waited_for(watched: WatchedRun) -> None:
    claimed = await watched.rows.started()
    await watched.rows.settle(claimed)
    status = await watched.statuses.get_ended(claimed.id, LONG)
    assert status is not None
    assert await watched.statuses.get_ended(new_id(), LONG) is None
    assert watched.statuses._ends._waiting == {}


async def test_nobody_waits_for_what_they_may_not_see(watched: WatchedRun) -> None:
    claimed = await watched.rows.started()
    waiting = watched.statuses.get_ended(claimed.id, LONG, lambda found: found.id != claimed.id)
    status = await asyncio.wait_for(waiting, LONG / 2)
    assert status is not None
    assert status.state is State.STARTED


async def test_the_end_of_another_wakes_nobody(watched: WatchedRun) -> None:
    other = await watched.rows.started()
    waiting = await watched.wait_for_end(seconds=0.3)
    await watched.rows.settle(other)
    status = await waiting
    assert status is not None
    assert status.state is State.STARTED


async def test_who_goes_away_is_forgotten(watched: WatchedRun) -> None:
    waiting = await watched.wait_for_end()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert watched.statuses._ends._waiting == {}


async def test_several_wait_for_one(watched: WatchedRun) -> None:
    first = await watched.wait_for_end()
    more = [asyncio.create_task(watched.statuses.get_ended(watched.claimed.id, LONG)) for _ in range(3)]
    await watched.rows.settle(watched.claimed)
    for waiting in (first, *more):
        assert await asyncio.wait_for(waiting, LONG / 3) is not None


async def test_who_waits_while_the_database_goes_away_is_told_that(watched: WatchedRun, proxy: Proxy) -> None:
    waiting = await watched.wait_for_end()
    await proxy.close()
    with pytest.raises(DatabaseUnavailable):
        await asyncio.wait_for(waiting, LONG / 3)
    assert watched.statuses._ends._waiting == {}


async def test_an_end_that_came_while_nobody_listened_is_noticed(
    watched: WatchedRun, proxy: Proxy, emptied_url: str
) -> None:
    waiting = await watched.wait_for_end()
    async with Database(emptied_url) as beside:
        await proxy.cut()
        await Rows(beside, watched.rows.deployment).settle(watched.claimed)
    async with asyncio.timeout(LONG / 3):
        while (status := await _unless_away(waiting)) is None:
            waiting = asyncio.create_task(watched.statuses.get_ended(watched.claimed.id, LONG))
    assert status.state is State.SUCCESS


async def _unless_away(waiting: Waiting) -> KickoffStatus | None:
    """None for who met a connection that had been cut off, too."""
    try:
        return await waiting
    except DatabaseUnavailable:
        return None

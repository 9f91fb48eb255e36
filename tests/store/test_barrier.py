"""A change returns when every server has it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from store.proxy import Proxy
from windlass.store.barrier import passed_by_servers
from windlass.store.database import Database
from windlass.store.listener import TOKENS, Listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DEADLINE = 60.0
CHANGE = "SELECT pg_notify('windlass_tokens', 'a change')"


@pytest.fixture
async def proxy(shared_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(shared_url) as proxy:
        yield proxy


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[list[str]]:
    """The payloads of TOKENS that a server has received."""
    listener, received = Listener(url), list[str]()
    listener.on(TOKENS, received.append)
    await listener.start()
    try:
        await asyncio.wait_for(listener.listening.wait(), DEADLINE)
        yield received
    finally:
        await listener.stop()


@pytest.fixture
async def database(shared_url: str) -> AsyncIterator[Database]:
    async with Database(shared_url, connections=2, barrier_seconds=DEADLINE) as database:
        yield database


async def changed(database: Database) -> None:
    async with database.change() as connection:
        await connection.execute(CHANGE)


async def test_every_server_has_a_change_that_has_returned(database: Database, shared_url: str) -> None:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(listening(shared_url)) for _ in range(3)]
        for number in range(1, 20):
            await changed(database)
            assert [len(received) for received in servers] == [number] * 3


async def test_changes_at_once_wait_for_their_own_barriers(database: Database, shared_url: str) -> None:
    async with listening(shared_url) as one, listening(shared_url) as other:
        await asyncio.gather(*[changed(database) for _ in range(10)])
        assert (len(one), len(other)) == (10, 10)


async def test_a_change_waits_for_a_server_that_is_slow(database: Database, proxy: Proxy) -> None:
    async with listening(proxy.url) as received:
        proxy.freeze()
        change = asyncio.create_task(changed(database))
        done, _ = await asyncio.wait({change}, timeout=0.5)
        assert not done
        assert received == []
        proxy.thaw()
        await change
        assert received == ["a change"]


async def test_a_server_that_hangs_holds_a_change_for_a_bounded_time(shared_url: str, proxy: Proxy) -> None:
    async with Database(shared_url, barrier_seconds=0.2) as database, listening(proxy.url) as received:
        proxy.freeze()
        await asyncio.wait_for(changed(database), DEADLINE)
        assert received == []
        proxy.thaw()


async def test_a_change_without_a_server_waits_for_nobody(shared_url: str) -> None:
    async with Database(shared_url, barrier_seconds=10 * DEADLINE) as database:
        await asyncio.wait_for(changed(database), DEADLINE)


async def test_a_database_that_goes_away_after_the_commit_is_no_error_of_the_change(proxy: Proxy) -> None:
    await proxy.close()
    await passed_by_servers(proxy.url)

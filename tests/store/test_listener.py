from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import psycopg
import pytest

from store.proxy import Proxy
from windlass.store.listener import ENDED, TOKENS, Listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def proxy(shared_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(shared_url) as proxy:
        yield proxy


class Heard:
    """What a listener told, in its order, and a way to wait for it."""

    def __init__(self, listener: Listener) -> None:
        self.told: asyncio.Queue[str] = asyncio.Queue()
        self.listener = listener
        listener.on(ENDED, lambda payload: self.told.put_nowait(f"ended {payload}"))
        listener.on_gap(lambda: self.told.put_nowait("gap" if listener.listening.is_set() else "deaf"))

    async def next(self) -> str:
        return await asyncio.wait_for(self.told.get(), 60)


@pytest.fixture
async def heard(proxy: Proxy) -> AsyncIterator[Heard]:
    listener = Listener(proxy.url)
    heard = Heard(listener)
    await listener.start()
    assert await heard.next() == "gap"
    yield heard
    await listener.stop()


def notify(url: str, channel: str, payload: str = "") -> None:
    with psycopg.connect(url) as connection:
        connection.execute("SELECT pg_notify(%s, %s)", (channel, payload))


async def test_what_postgresql_notifies_is_heard(heard: Heard, shared_url: str) -> None:
    for payload in ("1", "2", "3"):
        notify(shared_url, ENDED, payload)
    assert [await heard.next() for _ in range(3)] == ["ended 1", "ended 2", "ended 3"]


async def test_each_hears_its_channel_alone(heard: Heard, shared_url: str) -> None:
    notify(shared_url, TOKENS, "not for us")
    notify(shared_url, ENDED, "for us")
    assert await heard.next() == "ended for us"


async def test_while_the_connection_is_lost_it_says_that_it_hears_nothing(heard: Heard, proxy: Proxy) -> None:
    await proxy.close()
    assert await heard.next() == "deaf"
    assert not heard.listener.listening.is_set()


async def test_it_hears_again_when_the_database_is_back(heard: Heard, proxy: Proxy, shared_url: str) -> None:
    await proxy.close()
    assert await heard.next() == "deaf"
    await proxy.open()
    assert await heard.next() == "gap"
    notify(shared_url, ENDED, "again")
    assert await heard.next() == "ended again"


async def test_it_tells_of_an_absence_once_and_of_its_end_once(
    heard: Heard, proxy: Proxy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "windlass")
    monkeypatch.setattr("windlass.store.listener.BETWEEN_ATTEMPTS", 0.01)
    await proxy.close()
    assert await heard.next() == "deaf"
    await asyncio.wait_for(_attempts(heard.listener, 5), 60)
    await proxy.open()
    assert await heard.next() == "gap"
    told = [record.message for record in caplog.records if record.name == "windlass.store.listener"]
    assert told == ["database.away", "database.back"]


async def test_a_callback_that_fails_does_not_end_the_hearing(heard: Heard, shared_url: str) -> None:
    def fail(payload: str) -> None:
        raise ValueError(payload)

    heard.listener.on(TOKENS, fail)
    notify(shared_url, TOKENS, "no uuid")
    assert [await heard.next(), await heard.next()] == ["deaf", "gap"]
    notify(shared_url, ENDED, "still here")
    assert await heard.next() == "ended still here"


async def test_its_first_connection_is_no_return(shared_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "windlass")
    listener = Listener(shared_url)
    await listener.start()
    await asyncio.wait_for(listener.listening.wait(), 60)
    await listener.stop()
    assert caplog.records == []


async def test_stop_may_come_twice_and_before_start(shared_url: str) -> None:
    listener = Listener(shared_url)
    await listener.stop()
    await listener.start()
    await listener.start()
    await asyncio.wait_for(listener.listening.wait(), 60)
    await listener.stop()
    await listener.stop()
    assert not listener.listening.is_set()


async def test_it_starts_while_the_database_is_away(proxy: Proxy) -> None:
    await proxy.close()
    listener = Listener(proxy.url)
    await listener.start()
    await proxy.open()
    await asyncio.wait_for(listener.listening.wait(), 60)
    await listener.stop()


async def _attempts(listener: Listener, count: int) -> None:
    """Waits until it has tried that often to connect."""
    tried = asyncio.Semaphore(0)
    listen = listener._listen

    async def counting() -> None:
        tried.release()
        await listen()

    listener._listen = counting  # type: ignore[method-assign]
    for _ in range(count):
        await tried.acquire()

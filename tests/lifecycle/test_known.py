from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import pytest

from windlass.store import listener as module
from windlass.store.listener import TOKENS, Listener, NotifyCache

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from store.proxy import Proxy


class Rows:
    """What is looked up, and how often it was."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.asked: list[str] = []
        self.asked_for = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def look_up(self, key: str) -> str | None:
        found = self.values.get(key)
        self.asked.append(key)
        self.asked_for.set()
        await self.may_answer.wait()
        return found


class Kept:
    def __init__(self, listener: Listener) -> None:
        self.rows = Rows()
        self.listener = listener
        self.changed = asyncio.Event()
        self.known: NotifyCache[str, str] = NotifyCache(self.rows.look_up, listener, TOKENS)
        listener.on(TOKENS, lambda _: self.changed.set())  # after the one of Known

    async def change(self, url: str) -> None:
        """Something changes, and the listener has heard of it when this returns."""
        self.changed.clear()
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute("SELECT pg_notify(%s, '')", (TOKENS,))
        await asyncio.wait_for(self.changed.wait(), 60)


@pytest.fixture
async def kept(proxy: Proxy) -> AsyncIterator[Kept]:
    listener = Listener(proxy.url)
    await listener.start()
    await asyncio.wait_for(listener.listening.wait(), 60)
    yield Kept(listener)
    await listener.stop()


async def test_a_row_is_looked_up_once(kept: Kept) -> None:
    kept.rows.values["a"] = "1"
    assert [await kept.known.get("a") for _ in range(3)] == ["1", "1", "1"]
    assert kept.rows.asked == ["a"]


async def test_that_there_is_none_is_not_kept(kept: Kept) -> None:
    assert await kept.known.get("a") is None
    kept.rows.values["a"] = "1"
    assert await kept.known.get("a") == "1"


async def test_a_change_makes_it_forget(kept: Kept, emptied_url: str) -> None:
    kept.rows.values["a"] = "1"
    await kept.known.get("a")
    del kept.rows.values["a"]
    await kept.change(emptied_url)
    assert await kept.known.get("a") is None


async def test_what_was_read_before_a_change_came_is_not_kept(kept: Kept, emptied_url: str) -> None:
    kept.rows.values["a"] = "valid"
    kept.rows.may_answer.clear()
    reading = asyncio.create_task(kept.known.get("a"))
    await kept.rows.asked_for.wait()
    del kept.rows.values["a"]
    await kept.change(emptied_url)
    kept.rows.may_answer.set()
    assert await reading == "valid"
    assert await kept.known.get("a") is None


async def test_while_nobody_listens_nothing_is_kept(kept: Kept, proxy: Proxy) -> None:
    kept.rows.values["a"] = "valid"
    await kept.known.get("a")
    lost = asyncio.Event()
    kept.listener.on_gap(lost.set)
    await proxy.close()
    await asyncio.wait_for(lost.wait(), 60)
    assert [await kept.known.get("a") for _ in range(2)] == ["valid", "valid"]
    assert kept.rows.asked == ["a", "a", "a"]


async def test_what_changed_while_nobody_listened_is_noticed(kept: Kept, proxy: Proxy) -> None:
    kept.rows.values["a"] = "valid"
    kept.rows.may_answer.clear()
    reading = asyncio.create_task(kept.known.get("a"))
    await kept.rows.asked_for.wait()
    await proxy.cut()
    await _deaf_and_back(kept.listener)
    kept.rows.may_answer.set()
    await reading
    del kept.rows.values["a"]
    assert await kept.known.get("a") is None


async def test_it_does_not_grow_without_end(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KNOWN", 3)
    for number in range(10):
        kept.rows.values[str(number)] = "x"
        await kept.known.get(str(number))
        assert len(kept.known._kept) <= 3


async def _deaf_and_back(listener: Listener) -> None:
    async with asyncio.timeout(60):
        while listener.listening.is_set():  # noqa: ASYNC110 - the callbacks of a gap come before and after
            await asyncio.sleep(0.001)
        await listener.listening.wait()

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from store.kickoff_rows import Rows
from windlass.errors import DatabaseUnavailable
from windlass.kickoffs.ids import new_id
from windlass.lifecycle.accept import Acceptor, IdempotencyKeyReused
from windlass.store.database import Database
from windlass.store.kickoffs import KickoffStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from store.proxy import Proxy


@pytest.fixture
async def rows(proxy: Proxy) -> AsyncIterator[Rows]:
    async with Database(proxy.url) as database:
        yield await Rows.make(database)


@pytest.fixture
def acceptor(rows: Rows) -> Acceptor:
    return Acceptor(rows.store)


async def test_what_is_accepted_is_a_row(acceptor: Acceptor, rows: Rows) -> None:
    new = rows.new()
    assert await acceptor.accept(new) == new.id
    assert new.id in await rows.store.statuses([new.id])


async def test_many_at_once_are_all_accepted(acceptor: Acceptor, rows: Rows) -> None:
    many = [rows.new(key=f"key {number}" if number % 2 else None) for number in range(200)]
    assert await asyncio.gather(*map(acceptor.accept, many)) == [new.id for new in many]
    assert len(await rows.store.statuses([new.id for new in many])) == 200


async def test_a_row_that_cannot_be_kept_is_its_own_trouble(acceptor: Acceptor, rows: Rows) -> None:
    many = [rows.new() for _ in range(5)]
    many[3] = replace(many[3], inputs="{")
    found = await asyncio.gather(*map(acceptor.accept, many), return_exceptions=True)
    assert isinstance(found.pop(3), psycopg.errors.InvalidTextRepresentation)
    assert found == [new.id for new in many if new.inputs == "{}"]


async def test_the_same_key_gives_the_same_kickoff(acceptor: Acceptor, rows: Rows) -> None:
    first, second = rows.new(key="a"), rows.new(key="a")
    assert await acceptor.accept(first) == await acceptor.accept(second) == first.id


async def test_the_same_key_at_the_same_instant_gives_the_same_kickoff(acceptor: Acceptor, rows: Rows) -> None:
    other_server = Acceptor(rows.store)
    many = [rows.new(key="a") for _ in range(20)]
    asked = [(acceptor, other_server)[number % 2].accept(new) for number, new in enumerate(many)]
    assert len(set(await asyncio.gather(*asked))) == 1
    (count,) = await rows.database.rows("SELECT count(*) AS kickoffs FROM kickoffs")
    assert count["kickoffs"] == 1


async def test_the_same_key_with_another_request_is_refused(acceptor: Acceptor, rows: Rows) -> None:
    first = await acceptor.accept(rows.new(key="a"))
    with pytest.raises(IdempotencyKeyReused, match=str(first)):
        await acceptor.accept(rows.new(key="a", request_digest=b"another"))


async def test_one_key_of_two_users_is_two_keys(acceptor: Acceptor, rows: Rows) -> None:
    mine, theirs = rows.new(key="a", user_id=new_id()), rows.new(key="a", user_id=new_id())
    assert await acceptor.accept(mine) == mine.id
    assert await acceptor.accept(theirs) == theirs.id


async def test_a_key_that_ends_between_two_statements_is_taken(
    acceptor: Acceptor, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    await acceptor.accept(rows.new(key="a"))
    reserved = rows.store.reserved

    async def gone_by_then(reservation: object) -> None:
        monkeypatch.setattr(rows.store, "reserved", reserved)
        await rows.database.execute("DELETE FROM idempotency_keys")

    monkeypatch.setattr(rows.store, "reserved", gone_by_then)
    second = rows.new(key="a")
    assert await acceptor.accept(second) == second.id


async def test_while_the_database_is_away_nothing_is_accepted(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Database(proxy.url) as database:
        rows = await Rows.make(database)
    monkeypatch.setattr("windlass.store.database.POOL_WAIT_SECONDS", 0.1)
    async with Database(proxy.url) as impatient:
        acceptor = Acceptor(KickoffStore(impatient))
        await proxy.close()
        found = await asyncio.gather(*(acceptor.accept(rows.new()) for _ in range(5)), return_exceptions=True)
        assert [type(error) for error in found] == [DatabaseUnavailable] * 5

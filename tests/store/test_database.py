from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from store.proxy import Proxy
from windlass.errors import DatabaseUnavailable, SettingsError
from windlass.store.database import Database, PoolRecovery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

DEADLINE = 60
"""Seconds in which anything happens on the slowest machine. A statement that is waited for takes ten times as long."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.store.database.POOL_WAIT_SECONDS", 0.3)


@pytest.fixture
async def proxy(shared_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(shared_url) as proxy:
        yield proxy


async def answering(database: Database) -> None:
    """Returns as soon as the database answers."""
    async with asyncio.timeout(DEADLINE):
        while not await database.answers():
            pass


async def connected(database: Database, count: int) -> None:
    """Opens so many connections, which stay in the pool."""
    async with AsyncExitStack() as stack:
        for _ in range(count):
            await stack.enter_async_context(database.connection(patient=True))


async def test_it_says_why_it_cannot_be_reached(proxy: Proxy) -> None:
    await proxy.close()
    with pytest.raises(DatabaseUnavailable, match=r"can't be reached: .* failed: .*WINDLASS_DATABASE_URL"):
        async with Database(proxy.url):
            pass


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:hidden pass@h/d", "postgresql://u:hidden%zz@h/d", "hidden", "postgresql://u:hidden@h/d?what=1"],
)
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(SettingsError, match="URL can't be read") as caught:
        Database(url)
    assert "hidden" not in f"{caught.value!r}{caught.value.__cause__!r}"
    assert caught.value.__suppress_context__


@pytest.mark.usefixtures("impatient")
async def test_while_it_is_away_every_method_says_so(proxy: Proxy) -> None:
    async with Database(proxy.url) as database:
        await proxy.close()
        asked = [ask("SELECT 1") for ask in (database.rows, database.row, database.execute)]
        found = await asyncio.gather(*asked, _twice(database), database.answers(), return_exceptions=True)
    *failed, answers = found
    assert [type(error) for error in failed] == [DatabaseUnavailable] * 4
    assert answers is False


@pytest.mark.usefixtures("impatient")
async def test_it_is_used_again_as_soon_as_it_is_back(proxy: Proxy) -> None:
    async with Database(proxy.url) as database:
        await proxy.close()
        assert not await database.answers()
        await proxy.open()
        await answering(database)


@pytest.mark.usefixtures("impatient")
async def test_the_pool_does_not_fill_the_log(proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with Database(proxy.url) as database:
            await proxy.close()
            assert not await database.answers()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_dead_connections_are_replaced_before_a_request_meets_one(proxy: Proxy) -> None:
    async with Database(proxy.url, connections=2) as database:
        await connected(database, 2)
        await proxy.cut()
        healing = PoolRecovery(database)
        healing.begin()
        healing.begin()
        assert healing._task is not None
        await asyncio.wait_for(healing._task, DEADLINE)
        await asyncio.gather(*(database.rows("SELECT 1") for _ in range(4)))
        await healing.stop()
        await healing.stop()


@pytest.mark.usefixtures("impatient")
async def test_healing_that_meets_an_absent_database_ends_quietly_and_can_begin_again(proxy: Proxy) -> None:
    async with Database(proxy.url) as database:
        await proxy.close()
        healing = PoolRecovery(database)
        healing.begin()
        assert healing._task is not None
        await asyncio.wait_for(healing._task, DEADLINE)
        assert not await database.answers()
        await proxy.open()
        healing.begin()
        await asyncio.wait_for(healing._task, DEADLINE)
        await answering(database)


async def test_healing_that_waits_for_a_frozen_server_can_be_stopped(proxy: Proxy) -> None:
    async with Database(proxy.url, connections=2) as database:
        await connected(database, 2)
        proxy.freeze()
        healing = PoolRecovery(database)
        healing.begin()
        await asyncio.sleep(0)
        assert healing._task is not None
        assert not healing._task.done()
        await asyncio.wait_for(healing.stop(), DEADLINE)
        assert healing._task.cancelled()
        proxy.thaw()
        await answering(database)


async def test_what_is_too_large_for_postgresql_is_not_an_absent_database(shared_url: str) -> None:
    async with Database(shared_url) as database:
        with pytest.raises(psycopg.errors.StatementTooComplex):
            await database.execute("SELECT %(deep)s::json", {"deep": "[" * 50_000 + "]" * 50_000})


async def test_a_copy_that_takes_no_changes_counts_as_absent_and_the_log_says_once_why(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = make_conninfo(shared_url, options="-c default_transaction_read_only=on")
    async with Database(url) as database:
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable):
                await database.execute("INSERT INTO settings (name, value) VALUES ('a', 'b')")
    told = [(record.message, vars(record)["event_fields"]) for record in caplog.records]
    assert told == [("database.refused", {"error": "cannot execute INSERT in a read-only transaction"})]


async def test_a_transaction_that_fails_leaves_nothing(shared_url: str) -> None:
    async with Database(shared_url) as database:
        with pytest.raises(psycopg.errors.UniqueViolation):
            await _twice(database)
        assert await database.row("SELECT 1 FROM settings WHERE name = 'twice'") is None


async def test_it_tells_how_many_rows_were_touched(shared_url: str) -> None:
    async with Database(shared_url) as database:
        assert await database.execute("SELECT * FROM generate_series(1, 3)") == 3


async def _twice(database: Database) -> None:
    async with database.transaction() as connection:
        for _ in range(2):
            await connection.execute("INSERT INTO settings (name, value) VALUES ('twice', '1')")


async def test_a_server_that_does_not_answer_counts_as_away(database_url: str) -> None:
    async with Database(database_url, statement_seconds=0.3) as database:
        await given_up(database.rows("SELECT pg_sleep(600)"))
        await answering(database)


async def given_up(statement: Awaitable[Any]) -> None:
    """The statement would take longer than the deadline."""
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(DatabaseUnavailable):
            await statement


async def test_a_frozen_server_is_not_waited_for(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("windlass.store.database.CANCEL_SECONDS", 0.2)
    async with Database(proxy.url, statement_seconds=0.3) as database:
        await connected(database, 3)
        proxy.freeze()
        await asyncio.gather(
            given_up(database.rows("SELECT 1")), given_up(_twice(database)), given_up(_in_a_pipeline(database))
        )
        proxy.thaw()
        await answering(database)
    assert {record.name for record in caplog.records} == {"windlass.store.database"}


async def test_what_a_client_waits_for_is_given_up_sooner(shared_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.store.database.ANSWER_SECONDS", 0.2)
    async with Database(shared_url, statement_seconds=600) as database:
        await given_up(database.rows("SELECT pg_sleep(600)", soon=True))
        assert await database.rows("SELECT 1 AS one FROM pg_sleep(0.5)") == [{"one": 1}]


async def _in_a_pipeline(database: Database) -> None:
    async with database.connection() as connection, connection.pipeline(), connection.transaction():
        await connection.execute("SELECT 1")

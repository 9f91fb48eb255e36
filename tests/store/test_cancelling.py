from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from windlass import aio
from windlass.aio import cancelled, obeying_cancellation
from windlass.errors import DatabaseUnavailable
from windlass.store.database import Database

if TYPE_CHECKING:
    from collections.abc import Awaitable


async def forgetful(work: Awaitable[None]) -> None:
    """As asyncio.wait_for before Python 3.12 does it."""
    with suppress(asyncio.CancelledError):
        await work


async def test_a_cancellation_that_was_forgotten_comes_at_the_end_of_the_block() -> None:
    after = False

    async def work() -> None:
        nonlocal after
        with obeying_cancellation():
            await forgetful(asyncio.sleep(60))
        after = True

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not after


async def test_it_comes_in_place_of_an_error() -> None:
    async def work() -> None:
        with obeying_cancellation():
            await forgetful(asyncio.sleep(60))
            raise DatabaseUnavailable("away")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_block_that_nobody_cancelled_ends_as_it_ends() -> None:
    with obeying_cancellation():
        pass
    with pytest.raises(LookupError), obeying_cancellation():
        raise LookupError


async def test_a_timeout_within_the_block_is_the_blocks_own_matter() -> None:
    with obeying_cancellation(), suppress(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.sleep(60)


@pytest.mark.parametrize("turns", range(8))
async def test_who_waits_for_a_connection_and_is_cancelled_as_it_comes_is_cancelled(
    shared_url: str, turns: int
) -> None:
    async with Database(shared_url, connections=2, statement_seconds=1) as database:
        async with database.connection(), database.connection():
            waiting = asyncio.create_task(database.rows("SELECT pg_sleep(60)"))
            await asyncio.sleep(0.02)
        for _ in range(turns):
            await asyncio.sleep(0)
        assert waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await database.answers()


async def test_a_task_that_forgets_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "AGAIN", 0.01)

    async def stubborn() -> None:
        for _ in range(3):
            await forgetful(asyncio.sleep(60))

    task, other = asyncio.create_task(stubborn()), asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    await asyncio.wait_for(cancelled(task, other), 60)
    assert task.done()
    assert other.cancelled()


async def test_what_a_cancelled_task_raises_is_heard_by_nobody() -> None:
    async def failing() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise LookupError

    task = asyncio.create_task(failing())
    await asyncio.sleep(0)
    await cancelled(task)


async def test_no_task_is_cancelled_at_once() -> None:
    await cancelled()

"""Waits until every server has handled the notifications of a change.

A server keeps rows that its requests need, and drops them when PostgreSQL notifies it of a change
(`windlass.store.listener.NotifyCache`). The notifications of one database arrive in the order of their transactions.
So a server that receives a later one, the barrier, has handled those of the change, and confirms it on the connection
of its listener.
"""

# See docs/decisions/store.md#a-change-returns-when-every-server-has-it

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from secrets import token_hex

import psycopg

BARRIERS, PASSED = "windlass_barriers", "windlass_passed"
LISTENER = "windlass listener"
"""The name that the connection of a listener has in pg_stat_activity while it listens."""
MOST_SECONDS = 2.0
"""A server that hangs, or whose machine is gone, confirms nothing. PostgreSQL may keep its connection for hours."""
LISTENERS = "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()"
NOTIFY = "SELECT pg_notify(%s, %s)"


async def passed_by_servers(url: str, seconds: float = MOST_SECONDS) -> None:
    """Returns when every server has handled the notifications that were sent before, and after `seconds` in any case.
    An error of the database is not raised: the change is committed.
    """
    with suppress(psycopg.Error, TimeoutError):
        async with asyncio.timeout(seconds):
            await _passed(url)


async def _passed(url: str) -> None:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True, application_name="windlass barrier")
    async with connection, aclosing(connection.notifies()) as notices:
        await connection.execute(f"LISTEN {PASSED}")
        waited_for = {pid for (pid,) in await (await connection.execute(LISTENERS, [LISTENER])).fetchall()}
        barrier = token_hex(8)
        await connection.execute(NOTIFY, [BARRIERS, barrier])
        while waited_for:
            notice = await anext(notices)
            if notice.payload == barrier:
                waited_for.discard(notice.pid)

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, LiteralString, Self

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from windlass import log
from windlass.errors import DatabaseUnavailable
from windlass.store.cancelling import obeying_cancellation
from windlass.store.libpq import check

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from psycopg.sql import SQL

Connection = AsyncConnection[DictRow]
Row = dict[str, Any]

AWAY = (
    TimeoutError,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    PoolTimeout,
    PoolClosed,
)
"""What is raised when PostgreSQL is not there, does not answer, goes away, refuses connections for now, or is a copy
that another one is to take the place of.
"""
TOO_MUCH = "54"
"""The class of what PostgreSQL refuses at any time, too large or too deep as it is; OperationalErrors for psycopg."""
SHUTTING_DOWN = "57P"
SECONDS_BETWEEN_REFUSALS = 10.0
CONNECT_SECONDS = 3
STATEMENT_SECONDS = 20.0
ANSWER_SECONDS = 4.0
"""For a short statement that a client waits for."""
CANCEL_SECONDS = 1.0
"""For PostgreSQL to cancel a statement that takes too long; then the connection is closed. psycopg waits for 10 s."""
KEEPALIVES = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 10_000,
}
"""A server that is cut off is found out within some 10 s."""
PATIENCE = 2.0
"""Seconds to wait for a connection before the database counts as away."""

logger = log.logger(__name__)

# The listener tells, once, that the database is away and why, and `Refusals` that it does not answer; psycopg would
# tell of each statement that it gives up, and its pool of each of its attempts.
logging.getLogger("psycopg").setLevel(logging.CRITICAL)


class Database:
    """Connections to one PostgreSQL. Every method raises DatabaseUnavailable when it is away."""

    def __init__(self, url: str, *, connections: int = 10, statement_seconds: float = STATEMENT_SECONDS) -> None:
        check(url)
        self.url = url
        self._refusals = Refusals()
        self._statement_seconds = statement_seconds
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            min_size=2,
            max_size=connections,
            open=False,
            timeout=PATIENCE,
            reconnect_timeout=0.5,  # then it tries again as soon as somebody needs a connection
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "connect_timeout": CONNECT_SECONDS,
                "application_name": "windlass",
                **KEEPALIVES,
            },
        )

    async def __aenter__(self) -> Self:
        """Raises DatabaseUnavailable, which says why, when it can't be reached now."""
        await self._reach()
        await self._pool.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close(timeout=2)

    async def _reach(self) -> None:
        # the pool itself tries for ever, and does not say why it fails
        try:
            async with await AsyncConnection.connect(self.url, connect_timeout=CONNECT_SECONDS):
                pass
        except psycopg.OperationalError as error:
            reason = " ".join(str(error).split())
            raise DatabaseUnavailable(
                f"The database can't be reached: {reason}", "See that PostgreSQL runs, and WINDLASS_DATABASE_URL."
            ) from error

    @asynccontextmanager
    async def connection(self, *, patient: bool = False, soon: bool = False) -> AsyncIterator[Connection]:
        """In autocommit mode: a statement is a transaction. A server that is there and does not answer counts as away
        after a while, unless `patient`, and after a few seconds if `soon`.
        """
        seconds = math.inf if patient else min(self._statement_seconds, ANSWER_SECONDS if soon else math.inf)
        with obeying_cancellation(), _telling_absence(self._refusals):
            # The inner one makes psycopg ask the server to cancel the statement, and wait for it; the outer ends that.
            async with _timeout(seconds + CANCEL_SECONDS), _timeout(seconds), self._pool.connection() as connection:
                yield connection

    @asynccontextmanager
    async def transaction(self, *, patient: bool = False) -> AsyncIterator[Connection]:
        async with self.connection(patient=patient) as connection, connection.transaction():
            yield connection

    async def rows(
        self, query: SQL | LiteralString, values: Mapping[str, Any] | None = None, *, soon: bool = False
    ) -> list[Row]:
        async with self.connection(soon=soon) as connection:
            return await fetch(connection, query, values)

    async def row(
        self, query: SQL | LiteralString, values: Mapping[str, Any] | None = None, *, soon: bool = False
    ) -> Row | None:
        found = await self.rows(query, values, soon=soon)
        return found[0] if found else None

    async def execute(self, query: SQL | LiteralString, values: Mapping[str, Any] | None = None) -> int:
        """The number of rows that the statement touched."""
        async with self.connection() as connection:
            return (await connection.execute(query, values)).rowcount

    async def answers(self) -> bool:
        try:
            await self.rows("SELECT 1", soon=True)
        except DatabaseUnavailable:
            return False
        return True

    async def replace_dead_connections(self) -> None:
        with obeying_cancellation(), _telling_absence(self._refusals):
            await self._pool.check()


async def fetch(
    connection: Connection, query: SQL | LiteralString, values: Mapping[str, Any] | None = None
) -> list[Row]:
    return await (await connection.execute(query, values)).fetchall()


def _timeout(seconds: float) -> asyncio.Timeout:
    return asyncio.timeout(None if seconds == math.inf else seconds)


class Refusals:
    """Logs, once in a while, why PostgreSQL does not work though it is there. That it is not, the listener tells."""

    def __init__(self) -> None:
        self._told = -math.inf

    def tell(self, error: BaseException) -> None:
        now = time.monotonic()
        if now - self._told > SECONDS_BETWEEN_REFUSALS:
            self._told = now
            logger.event("database.refused", error=" ".join(str(error).split()) or "no answer in time")


class _telling_absence:  # noqa: N801 - reads as the statement it is
    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        state = getattr(error, "sqlstate", None) or ""
        if isinstance(error, AWAY) and not state.startswith(TOO_MUCH):
            if isinstance(error, TimeoutError) or (state and not state.startswith(SHUTTING_DOWN)):
                self._refusals.tell(error)
            raise DatabaseUnavailable(
                "The database does not answer.", "It is tried again by itself; see the server's log for why."
            ) from error

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, LiteralString, Self

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from windlass.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from psycopg.sql import SQL

Connection = AsyncConnection[DictRow]
Row = dict[str, Any]

AWAY = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout, PoolClosed)
"""What psycopg raises when PostgreSQL is not there, goes away, or refuses connections for now."""
PATIENCE = 2.0
"""Seconds to wait for a connection before the database counts as away."""


class Database:
    """Connections to one PostgreSQL. Every method raises DatabaseUnavailable when it is away."""

    def __init__(self, url: str, *, connections: int = 10) -> None:
        self.url = url
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
                "connect_timeout": 3,
                "application_name": "windlass",
            },
        )

    async def __aenter__(self) -> Self:
        await self._pool.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close(timeout=2)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """In autocommit mode: a statement is a transaction."""
        with _telling_absence():
            async with self._pool.connection() as connection:
                yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        async with self.connection() as connection, connection.transaction():
            yield connection

    async def rows(self, query: SQL | LiteralString, values: Mapping[str, Any] | None = None) -> list[Row]:
        async with self.connection() as connection:
            return await fetch(connection, query, values)

    async def row(self, query: SQL | LiteralString, values: Mapping[str, Any] | None = None) -> Row | None:
        found = await self.rows(query, values)
        return found[0] if found else None

    async def execute(self, query: SQL | LiteralString, values: Mapping[str, Any] | None = None) -> int:
        """The number of rows that the statement touched."""
        async with self.connection() as connection:
            return (await connection.execute(query, values)).rowcount

    async def answers(self) -> bool:
        try:
            await self.rows("SELECT 1")
        except DatabaseUnavailable:
            return False
        return True

    async def replace_dead_connections(self) -> None:
        with _telling_absence():
            await self._pool.check()


async def fetch(
    connection: Connection, query: SQL | LiteralString, values: Mapping[str, Any] | None = None
) -> list[Row]:
    return await (await connection.execute(query, values)).fetchall()


class _telling_absence:  # noqa: N801 - reads as the statement it is
    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, AWAY):
            raise DatabaseUnavailable(
                "The database does not answer.", "It is tried again by itself; see the server's log for why."
            ) from error

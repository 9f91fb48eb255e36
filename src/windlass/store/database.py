from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, LiteralString, Self

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import Conninfo
from psycopg.rows import DictRow, dict_row
from psycopg.sql import SQL
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from windlass import log
from windlass.aio import cancelled, obeying_cancellation
from windlass.errors import DatabaseUnavailable, SettingsError, StatementGivenUp, WindlassError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


Connection = AsyncConnection[DictRow]
Row = dict[str, Any]

UNAVAILABLE_ERRORS = (
    TimeoutError,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    PoolTimeout,
    PoolClosed,
)
"""The errors raised when PostgreSQL is not running, does not answer, closes connections or refuses them for now.

A read-only standby raises ReadOnlySqlTransaction; it is about to be replaced by the primary.
"""
TOO_MUCH = "54"
"""The SQLSTATE class of values that are too large or too deeply nested. psycopg raises OperationalError for them."""
NO_ROOM = ("53100", "53200")
"""The SQLSTATEs of a full disk and of exhausted memory. A smaller statement may succeed."""
SHUTTING_DOWN = "57P"
SECONDS_BETWEEN_REFUSALS = 10.0
CONNECT_SECONDS = 3
STATEMENT_SECONDS = 20.0
BYTES_A_SECOND = 2 << 20
"""The write speed of a slow disk."""
ANSWER_SECONDS = 4.0
"""The time limit of a short statement that a client waits for."""
CANCEL_SECONDS = 1.0
"""The time for PostgreSQL to cancel a slow statement. Then the connection is closed. psycopg alone waits 10 s."""
KEEPALIVES = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 10_000,
}
"""With these, a broken network connection is detected within about 10 s."""
LARGE_WRITES = 2
"""Transactions with large values that run at once. Each holds a connection of the pool for seconds."""
PATIENCE = 2.0
"""Seconds to wait for a connection before the database counts as unavailable."""

HEADER = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
"""The line before each statement of queries/*.sql."""

logger = log.logger(__name__)

# The listener logs once that the database is unavailable and why; `Refusals` logs refused statements. psycopg would
# log each cancelled statement, and its pool each attempt to connect.
logging.getLogger("psycopg").setLevel(logging.CRITICAL)


@cache
def queries(file: str) -> dict[str, SQL]:
    """Returns the statements of queries/<file>.sql by name, without their comment lines."""
    text = resources.files("windlass.store").joinpath("queries", f"{file}.sql").read_text("utf-8")
    _, *parts = HEADER.split(text)
    return {name: SQL(_bare(body)) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _bare(body: str) -> str:
    return "\n".join(line for line in body.strip().splitlines() if not line.startswith("--"))


class Database:
    """A pool of connections to PostgreSQL. Each method raises DatabaseUnavailable when PostgreSQL is unavailable."""

    def __init__(self, url: str, *, connections: int = 10, statement_seconds: float = STATEMENT_SECONDS) -> None:
        check_url(url)
        self.url = url
        self._refusals = Refusals()
        self._statement_seconds = statement_seconds
        self._large_writes = asyncio.Semaphore(LARGE_WRITES)
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            min_size=2,
            max_size=connections,
            open=False,
            timeout=PATIENCE,
            reconnect_timeout=0.5,  # afterwards, the pool reconnects when a caller needs a connection
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "connect_timeout": CONNECT_SECONDS,
                "application_name": "windlass",
                **KEEPALIVES,
            },
        )

    async def __aenter__(self) -> Self:
        """Raises DatabaseUnavailable, with the reason, when the database can't be reached now."""
        await self._reach()
        await self._pool.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close(timeout=2)

    async def _reach(self) -> None:
        # The pool retries for ever, and does not report its errors.
        try:
            async with await AsyncConnection.connect(self.url, connect_timeout=CONNECT_SECONDS):
                pass
        except psycopg.OperationalError as error:
            reason = " ".join(str(error).split())
            raise DatabaseUnavailable(
                f"The database can't be reached: {reason}",
                "Check that PostgreSQL runs, and check WINDLASS_DATABASE_URL.",
            ) from error

    @asynccontextmanager
    async def connection(
        self, *, patient: bool = False, soon: bool = False, size: int = 0
    ) -> AsyncIterator[Connection]:
        """Provides a connection in autocommit mode: each statement is a transaction.

        Raises DatabaseUnavailable when the block takes longer than the time limit. The limit is 20 s by default and 4 s
        with `soon`. `patient` removes it. `size`, the bytes that are sent, extends it.
        """
        seconds = math.inf if patient else min(self._statement_seconds, ANSWER_SECONDS if soon else math.inf)
        seconds += size / BYTES_A_SECOND
        with obeying_cancellation(), _reporting_absence(self._refusals) as absence:
            # The inner timeout makes psycopg cancel the statement on the server and wait. The outer one ends that wait.
            async with _timeout(seconds + CANCEL_SECONDS), _timeout(seconds), self._pool.connection() as connection:
                absence.connected = True
                yield connection

    @asynccontextmanager
    async def transaction(self, *, patient: bool = False, size: int = 0) -> AsyncIterator[Connection]:
        """Provides a transaction. One with a `size` waits while LARGE_WRITES others with a size run."""
        async with (
            self._large_writes if size else nullcontext(),
            self.connection(patient=patient, size=size) as connection,
            connection.transaction(),
        ):
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
        """Returns the number of rows that the statement affected."""
        async with self.connection() as connection:
            return (await connection.execute(query, values)).rowcount

    async def answers(self) -> bool:
        try:
            await self.rows("SELECT 1", soon=True)
        except DatabaseUnavailable:
            return False
        return True

    async def replace_dead_connections(self) -> None:
        with obeying_cancellation(), _reporting_absence(self._refusals):
            await self._pool.check()


async def fetch(
    connection: Connection, query: SQL | LiteralString, values: Mapping[str, Any] | None = None
) -> list[Row]:
    return await (await connection.execute(query, values)).fetchall()


def _timeout(seconds: float) -> asyncio.Timeout:
    return asyncio.timeout(None if seconds == math.inf else seconds)


class Refusals:
    """Logs why PostgreSQL refuses statements though it runs, once per SECONDS_BETWEEN_REFUSALS at most.

    The listener logs that PostgreSQL is unreachable.
    """

    def __init__(self) -> None:
        self._reported_at = -math.inf

    def report(self, error: BaseException) -> None:
        now = time.monotonic()
        if now - self._reported_at > SECONDS_BETWEEN_REFUSALS:
            self._reported_at = now
            logger.event("database.refused", error=" ".join(str(error).split()) or "no answer in time")


class _reporting_absence:  # noqa: N801 - reads as the statement it is
    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals
        self.connected = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        state = getattr(error, "sqlstate", None) or ""
        if isinstance(error, UNAVAILABLE_ERRORS) and not state.startswith(TOO_MUCH):
            if isinstance(error, TimeoutError) or (state and not state.startswith(SHUTTING_DOWN)):
                self._refusals.report(error)
            given_up = state in NO_ROOM or (self.connected and isinstance(error, TimeoutError))
            raise (StatementGivenUp if given_up else DatabaseUnavailable)(
                "The database does not answer.", "The server retries automatically; its log gives the reason."
            ) from error


class PoolRecovery:
    """Replaces the pool's dead connections when the database answers again, so that no request gets one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._heal())

    async def stop(self) -> None:
        if self._task:
            await cancelled(self._task)

    async def _heal(self) -> None:
        with suppress(DatabaseUnavailable):  # `begin` is called again when the database answers
            await self._database.replace_dead_connections()


def check_url(url: str) -> None:
    """Raises SettingsError for a URL that can't be parsed. The error does not quote the URL."""
    try:
        Conninfo.parse(url.encode())
    except psycopg.OperationalError:  # its message quotes the URL
        raise SettingsError(
            "The database's URL can't be read.",
            "Its form is postgresql://user:password@host:5432/name, with %-codes for special characters in the "
            "password.",
        ) from None


def libpq_variables(url: str) -> tuple[dict[str, str], str | None]:
    """Returns the PG* variables that make PostgreSQL's own programs connect to `url`, and the password or None.

    With the variables, the URL is not visible on a command line. The password must not be visible in an environment
    either: see `hardening.password_file`. Raises WindlassError for a URL that can't be parsed or that variables can't
    express. The error does not quote the URL.
    """
    check_url(url)
    given = [option for option in Conninfo.parse(url.encode()) if option.val is not None]
    if unknown := [option.keyword.decode() for option in given if option.envvar is None]:
        raise WindlassError(
            f"The database's URL sets {', '.join(unknown)}, which no PG* variable can express.",
            "Run psql with the URL that `windlass db url` prints.",
        )
    found = {
        option.envvar.decode(): option.val.decode() for option in given if option.envvar and option.val is not None
    }
    return found, found.pop("PGPASSWORD", None)

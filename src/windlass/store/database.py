"""Connects to PostgreSQL: a pool of connections, statements with time limits, transactions, and named queries."""

# See docs/decisions/store.md#each-connection-sets-what-the-store-depends-on

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
from psycopg.sql import SQL, Composable, Composed
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from windlass import log, metrics
from windlass.aio import cancelled, obeying_cancellation
from windlass.errors import DatabaseUnavailable, SettingsError, StatementGivenUp, WindlassError
from windlass.store.barrier import MOST_SECONDS, passed_by_servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


Connection = AsyncConnection[DictRow]
Row = dict[str, Any]
Statement = SQL

UNAVAILABLE_ERRORS = (
    TimeoutError,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    PoolTimeout,
    PoolClosed,
)
"""The errors raised when PostgreSQL is not running, does not answer, closes connections or temporarily refuses them.

ReadOnlySqlTransaction is among them: for a short time after a failover, the URL may lead to a read-only standby.
"""
PROGRAM_LIMIT = "54"
"""The SQLSTATE class of values that are too large or too deeply nested. psycopg raises OperationalError for them,
although they are errors of the caller.
"""
OUT_OF_RESOURCES = ("53100", "53200")
"""The SQLSTATEs of a full disk and of exhausted memory. The caller may try again with a smaller statement."""
SHUTTING_DOWN = "57P"
"""The beginning of the SQLSTATEs of a PostgreSQL that stops or starts."""
SECONDS_BETWEEN_REFUSALS = 10.0
CONNECT_SECONDS = 3
STATEMENT_SECONDS = 20.0
BYTES_A_SECOND = 2 << 20
"""The write speed that is assumed of a slow disk. It extends the time limit of large writes."""
ANSWER_SECONDS = 4.0
"""The time limit of a short statement, for which a client's HTTP request waits."""
CANCEL_SECONDS = 1.0
"""The time for PostgreSQL to cancel a slow statement, before the connection is closed. psycopg's default is 10 s."""
KEEPALIVES = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 10_000,
}
"""With these, a broken network connection is detected within about 10 s."""
SESSION = {
    "jit": "off",  # the compilation of a statement takes longer than the statement
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "bytea_output": "hex",
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "default_transaction_isolation": "read committed",  # each change of state is a compare-and-set, never repeated
    "statement_timeout": "0",  # Windlass limits its statements itself, and a migration may take long
    "lock_timeout": "0",
    "transaction_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
}
"""Settings of each connection. Those of the user's database, role or postgresql.conf may have other values."""
SET_SESSION = (
    "SELECT set_config(name, value, false) "
    "FROM unnest(%(names)s::text[], %(values)s::text[]) AS given (name, value) "
    "WHERE current_setting(name, true) IS NOT NULL"  # each PostgreSQL version has other timeouts
)
TLS_HINT = (
    "In WINDLASS_DATABASE_URL, name the host as the certificate of the server does, and in sslrootcert the file of its "
    "CA."
)
GET_SESSION = (
    "SELECT name, current_setting(name, true), quote_ident(current_user), quote_ident(current_database()) "
    "FROM unnest(%(names)s::text[]) AS given (name)"
)
LARGE_WRITES = 2
"""Transactions with large values that run at once. Each holds a connection of the pool for seconds."""
POOL_WAIT_SECONDS = 2.0
"""The longest wait for a connection of the pool. After it the database counts as unavailable."""

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


def filled(statement: SQL, **parts: Composable) -> SQL:
    """Returns the statement with these parts in place of its `{names}`."""
    return SQL(statement.format(**parts).as_string())


async def prepare_session(connection: AsyncConnection[Any]) -> None:
    """Sets SESSION on a new connection in autocommit mode.

    The settings are not sent as options of the connection, because PgBouncer refuses such options.
    """
    await connection.execute(SET_SESSION, {"names": list(SESSION), "values": list(SESSION.values())})


class Database:
    """A pool of connections to PostgreSQL.

    Each method raises DatabaseUnavailable when PostgreSQL is unavailable. Its subclass StatementGivenUp means that this
    statement failed although PostgreSQL is available: it took too long, or the disk or the memory was full. A write
    that took too long may have been committed.
    """

    def __init__(
        self,
        url: str,
        *,
        pooler: str | None = None,
        connections: int = 10,
        statement_seconds: float = STATEMENT_SECONDS,
        barrier_seconds: float = MOST_SECONDS,
    ) -> None:
        """`pooler` is the URL for statements if it is another one: that of a pooler with pool_mode = transaction.

        `url` leads to PostgreSQL itself. Listeners and side jobs use it.
        """
        check_url(url)
        check_url(pooler or url)
        self.url = url
        self._pooler = pooler
        self._refusals = Refusals()
        self._statement_seconds = statement_seconds
        self._barrier_seconds = barrier_seconds
        self._large_writes = asyncio.Semaphore(LARGE_WRITES)
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            pooler or url,
            min_size=1,
            max_size=connections,
            open=False,
            timeout=POOL_WAIT_SECONDS,
            reconnect_timeout=0.5,  # afterwards, the pool reconnects when a caller needs a connection
            configure=None if pooler else prepare_session,
            kwargs={
                **({"prepare_threshold": None} if pooler else {}),  # a prepared statement belongs to one connection
                "autocommit": True,
                "row_factory": dict_row,
                "connect_timeout": CONNECT_SECONDS,
                "application_name": "windlass",
                **KEEPALIVES,
            },
        )

    async def __aenter__(self) -> Self:
        """Raises DatabaseUnavailable, with the reason, when the database can't be reached now."""
        await self._check_reachable()
        await self._pool.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close(timeout=2)

    async def _check_reachable(self) -> None:
        # The pool retries for ever and does not raise errors of a connection, so this makes one directly.
        try:
            for url in filter(None, (self.url, self._pooler)):
                async with await AsyncConnection.connect(url, connect_timeout=CONNECT_SECONDS):
                    pass
        except psycopg.OperationalError as error:
            reason = " ".join(str(error).split())
            hint = (
                TLS_HINT if "certificate" in reason else "Check that PostgreSQL runs, and check WINDLASS_DATABASE_URL."
            )
            raise DatabaseUnavailable(f"The database can't be reached: {reason}", hint) from error

    @asynccontextmanager
    async def connection(
        self, *, patient: bool = False, soon: bool = False, size: int = 0
    ) -> AsyncIterator[Connection]:
        """Provides a connection in autocommit mode: each statement is a transaction.

        Raises StatementGivenUp when the block takes longer than its time limit, and DatabaseUnavailable when no
        connection is free within POOL_WAIT_SECONDS. The limit is 20 s, and 4 s with `soon`; `patient` removes it.
        `size` is the number of bytes to send; it adds `size / BYTES_A_SECOND` seconds.
        """
        seconds = math.inf if patient else min(self._statement_seconds, ANSWER_SECONDS if soon else math.inf)
        seconds += size / BYTES_A_SECOND
        with metrics.DATABASE.time(), obeying_cancellation(), _translating_errors(self._refusals) as errors:
            # The inner timeout makes psycopg cancel the statement on the server and wait. The outer one ends that wait.
            async with _timeout(seconds + CANCEL_SECONDS), _timeout(seconds), self._pool.connection() as connection:
                errors.connected = True
                yield connection

    @asynccontextmanager
    async def transaction(
        self, *, patient: bool = False, soon: bool = False, size: int = 0
    ) -> AsyncIterator[Connection]:
        """Provides a transaction. One with a `size` waits while LARGE_WRITES others with a size run."""
        async with (
            self._large_writes if size else nullcontext(),
            self.connection(patient=patient, soon=soon, size=size) as connection,
            connection.transaction(),
        ):
            yield connection

    @asynccontextmanager
    async def change(self) -> AsyncIterator[Connection]:
        """Provides a transaction that changes what servers keep. Returns when every server has the change."""
        async with self.transaction() as connection:
            yield connection
        await self.passed_by_servers()

    async def passed_by_servers(self) -> None:
        """Waits until every server has handled the notifications of earlier transactions, 2 s at most."""
        await passed_by_servers(self.url, self._barrier_seconds)

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
        with obeying_cancellation(), _translating_errors(self._refusals):
            await self._pool.check()


async def fetch(
    connection: Connection, query: SQL | Composed | LiteralString, values: Mapping[str, Any] | None = None
) -> list[Row]:
    return await (await connection.execute(query, values)).fetchall()


def _timeout(seconds: float) -> asyncio.Timeout:
    return asyncio.timeout(None if seconds == math.inf else seconds)


class Store:
    """The statements of one topic. The named SQL is in `queries/`."""

    def __init__(self, database: Database) -> None:
        self._database = database


class Refusals:
    """Logs refused statements and statements that took too long, at most once per SECONDS_BETWEEN_REFUSALS.

    `store.listener.Listener` logs that PostgreSQL can't be reached.
    """

    def __init__(self) -> None:
        self._reported_at = -math.inf

    def report(self, error: BaseException) -> None:
        now = time.monotonic()
        if now - self._reported_at > SECONDS_BETWEEN_REFUSALS:
            self._reported_at = now
            logger.event("database.refused", error=" ".join(str(error).split()) or "no answer in time")


class _translating_errors:  # noqa: N801 - used as a context manager: `with _translating_errors(...)`
    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals
        self.connected = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        sqlstate = getattr(error, "sqlstate", None) or ""
        if isinstance(error, UNAVAILABLE_ERRORS) and not sqlstate.startswith(PROGRAM_LIMIT):
            if isinstance(error, TimeoutError) or (sqlstate and not sqlstate.startswith(SHUTTING_DOWN)):
                self._refusals.report(error)
            given_up = sqlstate in OUT_OF_RESOURCES or (self.connected and isinstance(error, TimeoutError))
            kind_of_error = StatementGivenUp if given_up else DatabaseUnavailable
            what = "could not complete the statement" if given_up else "does not answer"
            raise kind_of_error(
                f"The database {what}.", "The server retries automatically; its log gives the reason."
            ) from error


class PoolRecovery:
    """Replaces the dead connections of the pool after an outage, before a request uses one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._replace_dead_connections())

    async def stop(self) -> None:
        if self._task:
            await cancelled(self._task)

    async def _replace_dead_connections(self) -> None:
        with suppress(DatabaseUnavailable):  # `begin` is called again when the database answers
            await self._database.replace_dead_connections()


async def refuse_read_only(url: str) -> None:
    """Raises SettingsError if the URL leads to a standby or to a database that permits only reads.

    Does nothing when the database can't be reached.
    """
    try:
        async with await _connect(url) as connection:
            (found,) = await (await connection.execute("SELECT current_setting('transaction_read_only')")).fetchone()  # type: ignore[misc]  # one row
    except psycopg.OperationalError:
        return
    if found == "on":
        raise SettingsError(
            "WINDLASS_DATABASE_URL leads to a read-only database: a standby, or default_transaction_read_only is on.",
            "Name the primary. With several hosts in the URL, add target_session_attrs=read-write "
            "(docs/how-to/postgresql.md).",
        )


async def refuse_transaction_pooling(url: str) -> None:
    """Raises SettingsError if a pooler gives each transaction any connection of PostgreSQL, as PgBouncer may do.

    Does nothing when the database can't be reached. Two clients that are connected at the same time have different
    connections of PostgreSQL, and each keeps its own, unless there is such a pooler.
    """
    try:
        async with await _connect(url) as one, await _connect(url) as other:
            first = await _backend(one)
            async with other.transaction():
                second = await _backend(other)
                shared = first == second or first != await _backend(one)
    except psycopg.errors.ProtocolViolation:  # PgBouncer with pool_mode = statement refuses transactions
        shared = True
    except psycopg.OperationalError:
        return
    if shared:
        raise SettingsError(
            "WINDLASS_DATABASE_URL leads to a connection pooler that gives each transaction another connection of "
            "PostgreSQL (PgBouncer with pool_mode = transaction). Windlass needs connections of its own, to receive "
            "notifications.",
            "Set pool_mode = session for this database, or name the address of PostgreSQL itself in "
            "WINDLASS_DATABASE_DIRECT_URL (docs/how-to/postgresql.md).",
        )


async def demand_session_defaults(url: str) -> None:
    """Raises SettingsError if a pooler gives connections whose settings are not those that the store depends on.

    The store can't set them there: the next transaction gets another connection. Does nothing when the database can't
    be reached.
    """
    try:
        async with await AsyncConnection.connect(
            url, autocommit=True, connect_timeout=CONNECT_SECONDS, prepare_threshold=None
        ) as connection:
            found = await (await connection.execute(GET_SESSION, {"names": list(SESSION)})).fetchall()
    except psycopg.OperationalError:
        return
    wrong = [name for name, value, _, _ in found if value is not None and not _fits(name, value)]
    if wrong:
        role, database = found[0][2:]
        statements = " ".join(
            f"ALTER ROLE {role} IN DATABASE {database} SET {name} = '{SESSION[name]}';" for name in wrong
        )
        raise SettingsError(
            f"The connections of the pooler in WINDLASS_DATABASE_URL have other settings than Windlass needs: "
            f"{', '.join(wrong)}.",
            f"Run this, and RECONNECT in the console of PgBouncer: {statements}",
        )


def _fits(name: str, value: str) -> bool:
    if name == "timezone":
        return value.removeprefix("Etc/") == SESSION[name]
    return value.lower().partition(",")[0] == SESSION[name].lower()


async def _connect(url: str) -> AsyncConnection[Any]:
    return await AsyncConnection.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS)


async def _backend(connection: AsyncConnection[Any]) -> int:
    (pid,) = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()  # type: ignore[misc]  # one row
    return int(pid)


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
            "Run psql with the URL that `windlass admin db --url` prints.",
        )
    found = {
        option.envvar.decode(): option.val.decode() for option in given if option.envvar and option.val is not None
    }
    return found, found.pop("PGPASSWORD", None)

"""One database for many tests, emptied before each: making one takes longer than most of them."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier, Literal

from windlass.embedded_postgres.data_folder import SUPERUSER, USER
from windlass.store.database import Database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

TEMPLATE = "template_of_tests"  # the fixture `postgres` makes it
KEPT = {"migrations", "side_job_migrations", "statistics_progress"}
WRITTEN = """
SELECT t.relname, t.reltuples >= 0 OR pg_relation_size(t.oid) + coalesce(pg_relation_size(toast.oid), 0) > 65536
FROM pg_class t LEFT JOIN pg_class toast ON toast.oid = t.reltoastrelid
WHERE t.relnamespace = 'public'::regnamespace AND t.relkind = 'r' AND t.relname <> ALL (%s)
  AND pg_relation_size(t.oid) > 0
"""
"""Tables with pages, and whether only TRUNCATE makes them as new: they have statistics, or many pages. It costs
PostgreSQL two milliseconds for each table that refers to one of them, DELETE a tenth.
"""

OBJECTS = """
SELECT (SELECT count(*) FROM pg_trigger), (SELECT count(*) FROM pg_constraint), (SELECT count(*) FROM pg_proc)
"""

_connections: dict[str, psycopg.Connection] = {}


def made(postgres: str, name: str) -> Iterator[str]:
    """The URL of a new database."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        order = SQL("CREATE DATABASE {} TEMPLATE {}")
        connection.execute(order.format(Identifier(name), Identifier(TEMPLATE)))
    url = make_conninfo(postgres, dbname=name)
    yield url
    _close(url)
    with psycopg.connect(postgres, autocommit=True) as connection:
        drop(connection, name)


@asynccontextmanager
async def connected(url: str, connections: int = 10) -> AsyncIterator[Database]:
    """A database whose first connection is made: on a busy machine that takes longer than a statement may wait."""
    async with Database(url, connections=connections) as database, asyncio.timeout(60):
        while not await database.answers():
            pass
        yield database


def drop(connection: psycopg.Connection, name: str) -> None:
    """Also while autovacuum is in it, which only a superuser may end: it leaves soon by itself."""
    for left in reversed(range(50)):
        try:
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectInUse):
            if not left:
                raise
            time.sleep(0.1)
        else:
            return


def empty(url: str) -> None:
    """Leaves each table as TRUNCATE does for whoever plans a query: without statistics, and of a few pages at most."""
    try:
        _empty(_connection(url))
    except psycopg.OperationalError:  # a test has ended the connection
        _close(url)
        _empty(_connection(url))


def objects(url: str) -> Any:
    """Counts the triggers, constraints and functions."""
    try:
        return _connection(url).execute(OBJECTS).fetchone()
    except psycopg.OperationalError:
        _close(url)
        return _connection(url).execute(OBJECTS).fetchone()


def _empty(connection: psycopg.Connection) -> None:
    tables = connection.execute(WRITTEN, [list(KEPT)]).fetchall()
    with connection.transaction():
        for name in [name for name, large in tables if not large]:
            connection.execute(SQL("DELETE FROM {}").format(Identifier(name)))
        if large := [Identifier(name) for name, large in tables if large]:
            connection.execute(SQL("TRUNCATE {} CASCADE").format(SQL(", ").join(large)))


def _connection(url: str) -> psycopg.Connection:
    """Stays open until its database is dropped. No trigger runs for its statements, those of foreign keys included."""
    if url not in _connections:
        options = "-c session_replication_role=replica"
        _connections[url] = psycopg.connect(url, user=SUPERUSER, options=options, autocommit=True)
    return _connections[url]


def _close(url: str) -> None:
    if url in _connections:
        _connections.pop(url).close()


def hurry(url: str) -> None:
    """Makes work with this database cheap. Its data need not survive a power cut, and its password no attacker."""
    with psycopg.connect(url, user=SUPERUSER, autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            connection.execute(SQL("ALTER SYSTEM SET {} = off").format(Identifier(setting)))
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("SET scram_iterations = 1")  # each connection of a client computes as many hashes
        for role in (USER, SUPERUSER):
            change = SQL("ALTER ROLE {} PASSWORD {}")
            connection.execute(change.format(Identifier(role), Literal(conninfo_to_dict(url)["password"])))

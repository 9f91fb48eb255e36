"""One database for many tests, emptied before each: making one takes longer than most of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier, Literal

from windlass.embedded_postgres.data_folder import SUPERUSER, USER

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPLATE = "template_of_tests"  # the fixture `postgres` makes it
KEPT = {"migrations", "side_job_migrations", "statistics_progress"}
WITH_PAGES = """
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
AND relname <> ALL (%s) AND pg_relation_size(oid) > 0
"""


def made(postgres: str, name: str) -> Iterator[str]:
    """The URL of a new database."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        order = SQL("CREATE DATABASE {} TEMPLATE {}")
        connection.execute(order.format(Identifier(name), Identifier(TEMPLATE)))
    yield make_conninfo(postgres, dbname=name)
    with psycopg.connect(postgres, autocommit=True) as connection:
        drop(connection, name)


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
    """Truncates the tables that have pages only: each takes PostgreSQL two milliseconds, also when it has none."""
    with psycopg.connect(url) as connection:
        tables = connection.execute(WITH_PAGES, [list(KEPT)]).fetchall()
        if tables:
            names = SQL(", ").join(Identifier(name) for (name,) in tables)
            connection.execute(SQL("TRUNCATE {} CASCADE").format(names))


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

"""One database for many tests, emptied before each: making one takes longer than most of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPLATE = "template_of_tests"  # the fixture `postgres` makes it
KEPT = {"migrations", "side_job_migrations", "statistics_progress"}


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
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        names = SQL(", ").join(Identifier(name) for (name,) in tables if name not in KEPT)
        connection.execute(SQL("TRUNCATE {}").format(names))

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import settings
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from projects_for_tests.places import folder_for_all
from windlass.embedded_postgres.postgres import EmbeddedPostgres
from windlass.store.database import Database
from windlass.store.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

# A property is about values; how long one example takes on a busy machine is not its business.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

TEMPLATE = "template_of_tests"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL that the tests of one process share; TEMPLATE in it has all our tables."""
    with folder_for_all() as home:
        server = EmbeddedPostgres(home)
        url = server.start()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(TEMPLATE)))
        asyncio.run(_migrate(make_conninfo(url, dbname=TEMPLATE)))
        yield url
        server.stop()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    with folder_for_all() as folder:
        yield folder


@pytest.fixture
def database_url(postgres: str) -> Iterator[str]:
    """A database of the test's own, migrated and empty."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {} TEMPLATE {}").format(Identifier(name), Identifier(TEMPLATE)))
        yield make_conninfo(postgres, dbname=name)
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


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with Database(database_url) as database:
        yield database


async def _migrate(url: str) -> None:
    async with Database(url) as database:
        await migrate(database)

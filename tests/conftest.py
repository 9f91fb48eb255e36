from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import settings
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from windlass.embedded.postgres import EmbeddedPostgres
from windlass.store.database import Database
from windlass.store.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

# A property is about values; how long one example takes on a busy machine is not its business.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

TEMPLATE = "template_of_tests"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL that the tests of one process share; TEMPLATE in it has all our tables."""
    home = Path(tempfile.mkdtemp(prefix="windlass-test-"))
    home.chmod(0o755)
    server = EmbeddedPostgres(home)
    url = server.start()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(TEMPLATE)))
    asyncio.run(_migrate(make_conninfo(url, dbname=TEMPLATE)))
    yield url
    server.stop()
    shutil.rmtree(home)


@pytest.fixture
def database_url(postgres: str) -> Iterator[str]:
    """A database of the test's own, migrated and empty."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {} TEMPLATE {}").format(Identifier(name), Identifier(TEMPLATE)))
        yield make_conninfo(postgres, dbname=name)
        connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with Database(database_url) as database:
        yield database


async def _migrate(url: str) -> None:
    async with Database(url) as database:
        await migrate(database)

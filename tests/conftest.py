from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import psycopg
import pytest
import pytest_asyncio
from hypothesis import settings
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from dashboard.browser import Tabs, launched
from projects_for_tests.places import folder_for_all
from store.shared_database import TEMPLATE, made
from windlass.embedded_postgres.postgres import EmbeddedPostgres
from windlass.store.database import Database
from windlass.store.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from playwright.async_api import Browser

# A property is about values; how long one example takes on a busy machine is not its business.
# Each run of the tests has other examples.
settings.register_profile("unhurried", deadline=None, max_examples=30)
settings.load_profile("unhurried")

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
    yield from made(postgres, f"test_{next(_numbers)}")


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with Database(database_url) as database:
        yield database


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with launched() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def tabs(browser: Browser) -> AsyncIterator[Tabs]:
    """Pages of the test's own, which fail it when they do what no page may do."""
    tabs = Tabs(browser)
    yield tabs
    await tabs.close()


async def _migrate(url: str) -> None:
    async with Database(url) as database:
        await migrate(database)

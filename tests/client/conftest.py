from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
import pytest_asyncio
from psycopg.conninfo import make_conninfo

from api.serving import Crew, Server, serving
from cli.batch_crew import BatchCrew
from windlass.store.database import Database
from windlass.store.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(postgres: str) -> AsyncIterator[Server]:
    """A real one, whose worker is the test."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE DATABASE client")
    url = make_conninfo(postgres, dbname="client")
    async with Database(url) as database:
        await migrate(database)
    async with serving(url) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def served(server: Server) -> Crew:
    return await server.crew()


@pytest.fixture
def fake() -> Iterator[BatchCrew]:
    """One whose answers a test chooses."""
    crew = BatchCrew()
    crew.open()
    yield crew
    crew.close()

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest_asyncio
from psycopg.conninfo import make_conninfo

from api.serving import Crew, Server, serving
from windlass.store.database import Database
from windlass.store.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(postgres: str) -> AsyncIterator[Server]:
    """One that the tests of a process share: each brings crews of its own. Nobody may stop or break it."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE DATABASE api")
    url = make_conninfo(postgres, dbname="api")
    async with Database(url) as database:
        await migrate(database)
    async with serving(url) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def crew(server: Server) -> Crew:
    return await server.crew()

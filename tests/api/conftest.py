from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from api.serving import Crew, Server, serving
from store.shared_database import made

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture(scope="session")
def database_of_the_server(postgres: str) -> Iterator[str]:
    yield from made(postgres, "api")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(database_of_the_server: str) -> AsyncIterator[Server]:
    """One that the tests of a process share: each brings crews of its own. Nobody may stop or break it."""
    async with serving(database_of_the_server) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def crew(server: Server) -> Crew:
    return await server.crew()

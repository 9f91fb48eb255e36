from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from api.serving import Crew, Server, serving
from dashboard.live import LiveServer
from dashboard.people import Visitor
from projects_for_tests.places import folder_for_all
from store.shared_database import made
from windlass.rights import Role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture(scope="session")
def database_of_the_dashboard(postgres: str) -> Iterator[str]:
    yield from made(postgres, "dashboard")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(database_of_the_dashboard: str) -> AsyncIterator[Server]:
    """One without a worker, that the tests of a process share: each brings people and crews of its own."""
    async with serving(database_of_the_dashboard) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def crew(server: Server) -> Crew:
    return await server.crew()


@pytest_asyncio.fixture(loop_scope="session")
async def owner(server: Server) -> AsyncIterator[Visitor]:
    visitor = await Visitor.of(server, Role.OWNER)
    yield visitor
    await visitor.close()


@pytest_asyncio.fixture(loop_scope="session")
async def developer(server: Server) -> AsyncIterator[Visitor]:
    visitor = await Visitor.of(server, Role.DEVELOPER)
    yield visitor
    await visitor.close()


@pytest_asyncio.fixture(loop_scope="session")
async def viewer(server: Server) -> AsyncIterator[Visitor]:
    visitor = await Visitor.of(server, Role.VIEWER)
    yield visitor
    await visitor.close()


@pytest.fixture(scope="session")
def live() -> Iterator[LiveServer]:
    """A whole server, with a worker and a crew, for all tests that run something."""
    with folder_for_all() as folder, LiveServer.started(folder) as live:
        yield live

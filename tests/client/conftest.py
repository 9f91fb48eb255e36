from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from api.conftest import server
from cli.batch_crew import BatchCrew
from store.shared_database import made

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.serving import Crew, Server


__all__ = ["server"]


@pytest.fixture(scope="session")
def database_of_the_server(postgres: str) -> Iterator[str]:
    yield from made(postgres, "client")


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

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from deployments.builds_of_tests import Server
from store.shared_database import empty, made

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def shared_url(postgres: str) -> Iterator[str]:
    yield from made(postgres, "shared_by_deployment_tests")


@pytest.fixture
async def server(shared_url: str, tmp_path: Path) -> AsyncIterator[Server]:
    empty(shared_url)
    async with AsyncExitStack() as stack:
        yield await Server.start(shared_url, tmp_path, stack)

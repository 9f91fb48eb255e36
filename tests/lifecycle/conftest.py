from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from lifecycle.running import Place, World
from lifecycle.token_bench import TokenBench
from store.proxy import Proxy
from store.shared_database import empty, made
from windlass.store.database import Database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def shared_url(postgres: str) -> Iterator[str]:
    yield from made(postgres, "shared_by_lifecycle_tests")


@pytest.fixture
def url(shared_url: str) -> str:
    """Of a database without rows."""
    empty(shared_url)
    return shared_url


@pytest.fixture
async def proxy(url: str) -> AsyncIterator[Proxy]:
    async with Proxy(url) as proxy:
        yield proxy


@pytest.fixture
async def bench(url: str) -> AsyncIterator[TokenBench]:
    async with Database(url) as database:
        yield await TokenBench.make(database)


@pytest.fixture
async def world(url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with World(url, tmp_path, AsyncExitStack()) as world:
        yield world


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "place")
    yield place
    place.let_go()

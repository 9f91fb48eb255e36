from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from lifecycle.running import Place, World
from lifecycle.token_bench import TokenBench
from store.proxy import Proxy
from store.shared_database import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture
async def proxy(emptied_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(emptied_url) as proxy:
        yield proxy


@pytest.fixture
async def bench(emptied_url: str) -> AsyncIterator[TokenBench]:
    async with connected(emptied_url) as database:
        yield await TokenBench.make(database)


@pytest.fixture
async def world(emptied_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with World(emptied_url, tmp_path, AsyncExitStack()) as world:
        yield world


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "place")
    yield place
    place.let_go()

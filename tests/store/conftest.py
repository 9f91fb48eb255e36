from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.kickoff_rows import Rows
from store.shared_database import empty, made
from windlass.store.database import Database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture(scope="session")
def shared_url(postgres: str) -> Iterator[str]:
    yield from made(postgres, "shared_by_store_tests")


@pytest.fixture
async def rows(shared_url: str) -> AsyncIterator[Rows]:
    """On a database that is empty but for them."""
    empty(shared_url)
    async with Database(shared_url) as database:
        yield await Rows.make(database)

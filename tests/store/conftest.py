from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.kickoff_rows import Rows
from windlass.store.database import Database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def rows(emptied_url: str) -> AsyncIterator[Rows]:
    """On a database that is empty but for them."""
    async with Database(emptied_url) as database:
        yield await Rows.make(database)

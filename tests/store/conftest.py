from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.kickoff_rows import Rows
from store.shared_database import connected
from store.stock_postgres import INSTALLED, MISSING, server, with_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs each test of the store on the embedded PostgreSQL, and on the system's with its default settings."""
    if "postgres" in metafunc.fixturenames:
        servers = [None, "stock_postgres"]
        metafunc.parametrize("postgres", servers, ids=["embedded", "stock"], indirect=True, scope="session")


@pytest.fixture(scope="session")
def stock_postgres() -> Iterator[str]:
    if not INSTALLED:
        pytest.skip(MISSING)
    with server(INSTALLED[0].parent) as superuser:
        yield with_template(superuser)


@pytest.fixture
async def rows(emptied_url: str) -> AsyncIterator[Rows]:
    """On a database that is empty but for them."""
    async with connected(emptied_url) as database:
        yield await Rows.make(database)

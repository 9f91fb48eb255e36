from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from api.conftest import crew, server
from faults.conftest import idle_server
from store.shared_database import made

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["crew", "idle_server", "server"]


@pytest.fixture(scope="session")
def database_of_the_server(postgres: str) -> Iterator[str]:
    yield from made(postgres, "attacks")

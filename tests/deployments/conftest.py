from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from deployments.builds_of_tests import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def server(emptied_url: str, tmp_path: Path) -> AsyncIterator[Server]:
    async with AsyncExitStack() as stack:
        yield await Server.start(emptied_url, tmp_path, stack)

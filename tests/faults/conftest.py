from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from faults.dev_server import DevServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def idle_server(open_folder: Path) -> Iterator[DevServer]:
    """Not started yet."""
    server = DevServer(open_folder)
    server.write_project()
    yield server
    server.clean_up()

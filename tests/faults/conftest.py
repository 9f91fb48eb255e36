from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from faults.dev_server import DevServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def idle_server() -> Iterator[DevServer]:
    """Not started yet."""
    folder = Path(tempfile.mkdtemp(prefix="windlass-test-"))
    folder.chmod(0o755)
    server = DevServer(folder)
    server.write_project()
    yield server
    server.clean_up()
    shutil.rmtree(folder)

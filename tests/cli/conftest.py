from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.fake_crew import FakeCrew
from cli.the_command import Command, ForkedCommand

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def windlass(tmp_path: Path) -> Command:
    return ForkedCommand(tmp_path)


@pytest.fixture
def crew() -> Iterator[FakeCrew]:
    crew = FakeCrew()
    crew.open()
    yield crew
    crew.close()

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projects_for_tests.ends import note_others
from projects_for_tests.making import Bench, running_bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    note_others(tmp_path / "scratch")
    return tmp_path / "scratch"


@pytest.fixture
async def bench(scratch: Path) -> AsyncIterator[Bench]:
    async with running_bench(scratch) as bench:
        yield bench

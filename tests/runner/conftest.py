from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.ends import note_others
from projects_for_tests.making import Bench
from windlass.runner import Runner
from windlass.runner.run_spec import machine_environment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    note_others(tmp_path / "scratch")
    return tmp_path / "scratch"


@pytest.fixture
async def bench(scratch: Path) -> AsyncIterator[Bench]:
    environment = machine_environment(os.environ)  # noqa: TID251 - as windlass.config does it
    runner = Runner(scratch, environment)
    await runner.start()
    yield Bench(runner)
    await runner.stop()

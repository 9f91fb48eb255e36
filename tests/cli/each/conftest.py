from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.batch_crew import BatchCrew, write
from cli.fake_crew import TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cli.the_command import Command


@pytest.fixture
def windlass(windlass: Command) -> Command:
    windlass.environment["WINDLASS_TOKEN"] = TOKEN
    return windlass


@pytest.fixture
def crew() -> Iterator[BatchCrew]:
    crew = BatchCrew()
    crew.open()
    yield crew
    crew.close()


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    return write(tmp_path / "inputs.jsonl", "tea", "tides", "tin")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.checker import Checker, checker
from cli.fake_crew import FakeCrew
from cli.the_command import Command, ForkedCommand

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def check(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checker]:
    with checker(tmp_path_factory.mktemp("home")) as check:
        yield check


@pytest.fixture
def windlass(tmp_path: Path) -> Command:
    return ForkedCommand(tmp_path)


@pytest.fixture
def crew() -> Iterator[FakeCrew]:
    crew = FakeCrew()
    crew.open()
    yield crew
    crew.close()

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from projects_for_tests.driver import DrivenZygote
from projects_for_tests.making import Bench, running_bench
from projects_for_tests.recording import RecordingInterpreter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

CREWAI = pytest.mark.xdist_group("crewai")


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> RecordingInterpreter:
    return RecordingInterpreter(tmp_path_factory.mktemp("interpreter"))


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def bench(recording: RecordingInterpreter, scratch: Path) -> AsyncIterator[Bench]:
    """One runner for all tests here: a zygote with crewai takes seconds to start."""
    async with running_bench(scratch, interpreter=recording.path) as bench:
        bench.places.append(recording.path.parent)
        yield bench


@pytest.fixture(scope="session")
def shared_zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrivenZygote]:
    """One with crewai for all modules: its start takes seconds."""
    with DrivenZygote(tmp_path_factory.mktemp("zygote"), "crewai") as zygote:
        zygote.ready()
        yield zygote


@pytest.fixture
def zygote(shared_zygote: DrivenZygote) -> Iterator[DrivenZygote]:
    """One with crewai, that tests speak with over its raw socket."""
    yield shared_zygote
    shared_zygote.leave_children()

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projects_for_tests.driver import DrivenZygote
from projects_for_tests.environments import Environment, chosen
from projects_for_tests.recording import RecordingInterpreter

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The tests of one environment run in one process of pytest, and so share a zygote."""
    if "environment" in metafunc.fixturenames:
        found = [pytest.param(one, marks=pytest.mark.xdist_group(one.name), id=one.name) for one in chosen()]
        metafunc.parametrize("environment", found, scope="module")


@pytest.fixture(scope="module")
def recording(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> RecordingInterpreter:
    return RecordingInterpreter(tmp_path_factory.mktemp("interpreter"), environment.python)


@pytest.fixture(scope="module")
def zygote(recording: RecordingInterpreter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrivenZygote]:
    with DrivenZygote(tmp_path_factory.mktemp("zygote"), "crewai", command=[str(recording.path)]) as zygote:
        zygote.ready()
        yield zygote

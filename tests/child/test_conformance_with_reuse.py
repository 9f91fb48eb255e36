"""The conformance suite in processes that have run before (`reuse`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from child import test_conformance as suite
from projects_for_tests.making import Bench, Heard, doing
from windlass.projects.kinds import KINDS

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.kickoffs.outcome import Outcome
    from windlass.runner import Terminator

OTHERS = {
    "test_exit_handlers_run",  # with the end of the process: tests/runner/test_kept_children.py
    "test_one_run_sees_nothing_of_the_environment_of_another",  # another environment is another process
    "test_two_run_at_once",  # in two processes, of which the second is new
    "test_a_run_whose_project_can_not_be_loaded_fails_in_the_same_words",  # a load that fails is the first one
}
"""Tests that do not concern a process that has run before. Those that only inspect a project don't either."""

globals().update(
    {
        name: test
        for name, test in vars(suite).items()
        if name.startswith("test_") and "inspect" not in test.__code__.co_names and name not in OTHERS
    }
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize(
        "kind",
        [pytest.param(kind.name, marks=pytest.mark.xdist_group(suite.group_of(kind))) for kind in KINDS],
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("projects")


@pytest.fixture
def project(kind: str, folder: Path) -> Path:
    """Returns one project for all tests of a kind, so that they share processes."""
    made = folder / kind
    if not made.exists():
        doing(kind, made)
    return made / "project"


class ReusingBench(Bench):
    """Runs each order in a process that has run the same project in the same environment before."""

    async def run(
        self,
        project: Path,
        inputs: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
        heard: Heard | None = None,
        terminator: Terminator | None = None,
        **more: Any,
    ) -> Outcome:
        reuse: dict[str, Any] = {"reuse": 20, "version": str(project)}
        await super().run(project, {"do": "echo"}, environment, **reuse)
        kept = [one.child.process.pid for one in self.runner._kept._kept if one.key[1] == str(project)]
        outcome = await super().run(project, inputs, environment, heard, terminator, **more, **reuse)
        assert kept, "a process waits for the run"
        return outcome


@pytest_asyncio.fixture(loop_scope="session")
async def bench(bench: Bench) -> ReusingBench:
    return ReusingBench(bench.runner, bench.interpreter)

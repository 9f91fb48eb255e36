"""What a kickoff does on a crewai that has no place at which its tasks can be journaled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projects_for_tests.any_version import crew_of
from projects_for_tests.driver import DrivenZygote
from projects_for_tests.environments import Environment, chosen
from projects_for_tests.interrupted import Kickoff
from windlass_child.protocol.messages import Inspected, JournalAppend, Succeeded, Warned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.unit


WITHOUT_HOOKS = [one for one in chosen() if (0, 186) <= one.crewai < (1, 10)]

RENAME = """
import importlib.abc, importlib.util, sys

class Renaming(importlib.abc.MetaPathFinder):
    '''Renames the method that runs the tasks of a crew, as a release of crewai could.'''

    def find_spec(self, name, path, target=None):
        if name != "crewai.crew":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_rename(module):
            execute(module)
            crew = module.Crew
            crew._run_all = crew._execute_tasks
            crew._run_sequential_process = lambda self: self._run_all(self.tasks)
            del crew._execute_tasks

        spec.loader.exec_module = execute_and_rename
        return spec

sys.meta_path.insert(0, Renaming())
"""
WARNING = "crewai_without_task_journal"


@pytest.fixture(
    scope="module",
    params=[pytest.param(one, marks=pytest.mark.xdist_group(one.name), id=one.name) for one in WITHOUT_HOOKS][-1:],
)
def without(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrivenZygote]:
    environment: Environment = request.param
    folder = tmp_path_factory.mktemp("renaming")
    (folder / "sitecustomize.py").write_text(RENAME)
    command, given = [str(environment.python)], {"PYTHONPATH": str(folder)}
    with DrivenZygote(folder / "zygote", "crewai", command=command, environment=given) as zygote:
        zygote.ready()
        yield zygote


def test_a_killed_kickoff_starts_again_and_ends(without: DrivenZygote, tmp_path: Path) -> None:
    kickoff = Kickoff(without, crew_of(tmp_path / "project"), tmp_path, inputs={"topic": "parrots"})
    kickoff.interrupted("third")
    child = kickoff.attempt()
    answer = child.answer()
    assert isinstance(answer, Succeeded), answer
    assert dict(kickoff.calls) == {"first": 2, "second": 2, "third": 2}
    assert child.talk.of(JournalAppend) == []
    (warned,) = [one for one in child.talk.of(Warned) if one.code == WARNING]
    assert warned.message.endswith("after an interruption the kickoff starts again")


def test_an_inspection_lists_what_is_missing(without: DrivenZygote, tmp_path: Path) -> None:
    child = without.fork()
    child.inspect(crew_of(tmp_path / "project"), tmp_path / "inspection")
    answer = child.answer()
    assert isinstance(answer, Inspected), answer
    (listed,) = answer.manifest["warnings"]
    assert listed["code"] == WARNING
    assert [(one.code, one.message) for one in child.talk.of(Warned)] == [(WARNING, listed["message"])]

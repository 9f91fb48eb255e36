"""The names that Windlass replaces, and what happens where crewai can't run with the replacements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from child.conftest import CREWAI
from projects_for_tests.crews import crew_project, flow_project, one_task
from projects_for_tests.making import Heard, running_bench
from projects_for_tests.recording import RecordingInterpreter
from windlass.kickoffs.states import State
from windlass_child.protocol.messages import Warned
from windlass_child.replacements import NAMES, Given, give_up, replace_name, replaced, undo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from projects_for_tests.making import Bench

KEY, STAYS = "crewai:Task._execute_core", "threading:Thread.start"


class Base:
    def _execute_core(self) -> str:
        return "plain"


class Task(Base):
    def start(self) -> str:
        return "started"


def louder(run: Callable[..., str]) -> Callable[..., str]:
    return lambda task: f"{run(task)}!"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    undo(*NAMES)
    Given.up = ""


def test_a_name_is_replaced_until_the_end_of_the_block() -> None:
    with replaced(KEY, louder, Task):
        kept = Task._execute_core
        assert Task()._execute_core() == "plain!"
    assert Task()._execute_core() == "plain"
    assert "_execute_core" not in vars(Task), "it is inherited again"
    assert kept(Task()) == "plain", "who keeps the replaced method calls the original"


def test_what_code_in_the_block_sets_stays() -> None:
    class Own(Base):
        pass

    with replaced(KEY, louder, Own):
        Own._execute_core = lambda _: "of a library"  # type: ignore[assignment,method-assign]
    assert Own()._execute_core() == "of a library"


def test_replacements_that_last_are_undone_in_reverse() -> None:
    replace_name(KEY, louder, Task)
    replace_name(KEY, louder, Task)
    assert Task()._execute_core() == "plain!!"
    undo(KEY)
    assert Task()._execute_core() == "plain"
    assert "_execute_core" not in vars(Task)


def test_all_are_given_up_except_those_that_stay() -> None:
    replace_name(KEY, louder, Task)
    give_up("it failed")
    assert Task()._execute_core() == "plain"
    replace_name(KEY, louder, Task)
    with replaced(KEY, louder, Task), replaced(STAYS, louder, Task):
        assert Task()._execute_core() == "plain"
        assert Task().start() == "started!"


BREAKS = """
import importlib.abc, importlib.util, sys

class Checking(importlib.abc.MetaPathFinder):
    '''Makes a task fail whose methods are replaced, as a release of crewai could.'''

    def find_spec(self, name, path, target=None):
        if name != "crewai.task":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_check(module):
            execute(module)
            core, run = module.Task._execute_core, module.Task.execute_sync

            def checked(task, *arguments, **named):
                if module.Task._execute_core is not core:
                    raise RuntimeError("another method than crewai's")
                return run(task, *arguments, **named)

            module.Task.execute_sync = checked

        spec.loader.exec_module = execute_and_check
        return spec

sys.meta_path.insert(0, Checking())
"""


@pytest.mark.asyncio(loop_scope="session")
@CREWAI
async def test_crews_run_in_plain_crewai_where_the_warm_up_fails(tmp_path: Path) -> None:
    interpreter = RecordingInterpreter(tmp_path)
    (tmp_path / "sitecustomize.py").write_text(BREAKS)
    async with running_bench(tmp_path / "scratch", interpreter=interpreter.path) as broken:
        project, heard = crew_project(tmp_path / "project", one_task()), Heard()
        outcome = await broken.run(project, heard=heard)
        assert outcome.state is State.SUCCESS, outcome.error
        assert outcome.output == "said"
        (warned,) = [one for one in heard.of(Warned) if one.code == "crewai_warm_up_failed"]
        assert "RuntimeError: another method than crewai's" in warned.message
        assert broken.runner.failed_warm_ups() == 1
        manifest = await broken.inspect(project)
        assert "crewai_warm_up_failed" in [one["code"] for one in manifest.warnings]


@pytest.mark.asyncio(loop_scope="session")
@CREWAI
async def test_a_flow_prints_no_panels(bench: Bench, tmp_path: Path) -> None:
    code = """
    class Work(Flow):
        _skip_auto_memory = True
        @start()
        def first(self):
            print("own")
            return "done"
    """
    heard = Heard()
    outcome = await bench.run(flow_project(tmp_path / "project", code), heard=heard)
    assert outcome.output == "done"
    assert heard.lines("stdout") == ["own"]
    assert bench.runner.failed_warm_ups() == 0

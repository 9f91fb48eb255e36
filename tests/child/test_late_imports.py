from __future__ import annotations

import importlib.util
import pkgutil
import sys
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import PRELUDE
from projects_for_tests.driver import DrivenZygote, value_of
from projects_for_tests.interrupted import MODEL, Kickoff, kickoff_of_function
from projects_for_tests.making import function_project
from projects_for_tests.wild import wild
from windlass_child.frameworks import once_imported
from windlass_child.protocol.messages import Budget, Failed, JournalAppend, Project, Succeeded

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("crewai")

NAME = "imported_late"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    file = tmp_path / f"{NAME}.py"
    file.write_text("done = True\n")
    return file


@pytest.mark.usefixtures("module")
def test_it_acts_when_the_module_is_there_and_before_the_code_goes_on() -> None:
    seen: list[bool] = []
    with once_imported(NAME, lambda: seen.append(sys.modules[NAME].done)):
        assert seen == []
        __import__(NAME)
        assert seen == [True]
        __import__(NAME)
        assert pkgutil.get_data(NAME, f"{NAME}.py") == b"done = True\n", "its loader is its own"
    assert seen == [True]


@pytest.mark.usefixtures("module")
def test_it_acts_at_once_when_the_module_is_there_already() -> None:
    __import__(NAME)
    seen: list[int] = []
    with once_imported(NAME, lambda: seen.append(1)):
        assert seen == [1]
    assert seen == [1]


def test_it_acts_for_a_module_that_could_only_be_imported_the_second_time(module: Path) -> None:
    module.write_text("raise LookupError\n")
    seen: list[int] = []
    with once_imported(NAME, lambda: seen.append(1)):
        with pytest.raises(LookupError):
            __import__(NAME)
        module.write_text("later = 'it can be'\n")
        __import__(NAME)
    assert seen == [1]


@pytest.mark.usefixtures("module")
def test_after_it_nothing_is_left_of_it() -> None:
    before = list(sys.meta_path)
    with once_imported(NAME, lambda: pytest.fail("it was asked for afterwards")):
        pass
    assert sys.meta_path == before
    __import__(NAME)


LATE = """
import os

def run():
    global asyncio, json, re, time
    exec(compile(CODE, "crews", "exec"), globals())
    agent = one()
    return str(Crew(agents=[agent], tasks=[step("a", agent), step("b", agent)]).kickoff())
"""


def test_crews_of_a_function_that_imports_crewai_while_it_runs_are_journaled_and_counted(tmp_path: Path) -> None:
    with DrivenZygote(tmp_path / "zygote") as bare:
        bare.ready()
        code = f"CODE = {PRELUDE + MODEL!r}\n{LATE}"
        project = Project("function", str(function_project(tmp_path / "project", code)), "work:run")
        child = Kickoff(bare, project, tmp_path, budget=Budget(model_call_limit=1)).attempt()
        bare.until(lambda: child.talk.of(Failed) + child.talk.of(Succeeded), seconds=120)
        assert child.failure().message == "made 1 model call; its limit is 1."
        assert len(child.talk.of(JournalAppend)) == 1


@pytest.mark.parametrize("kicked_off", ["crew.kickoff()", "asyncio.run(within(crew))", "within(crew)"])
def test_a_crew_whose_output_a_function_gives_back_as_a_stream_is_run(
    zygote: DrivenZygote, tmp_path: Path, kicked_off: str
) -> None:
    code = f"""
    async def within(crew):
        return crew.kickoff()

    def run():
        agent = one()
        crew = Crew(agents=[agent], tasks=[step("a", agent), step("b", agent)], stream=True)
        return {kicked_off}
    """
    run = kickoff_of_function(zygote, tmp_path, code)
    run.interrupted("b")
    answer = run.attempt().answer()
    assert isinstance(answer, Succeeded)
    assert answer.output == "b of attempt 2"
    assert run.calls == {"a": 1, "b": 1}


@pytest.mark.parametrize("way", ["kickoff_async", "akickoff"])
def test_a_stream_that_runs_in_the_event_loop_is_read_there(zygote: DrivenZygote, tmp_path: Path, way: str) -> None:
    code = f"""
    async def run():
        agent = one()
        return await Crew(agents=[agent], tasks=[step("a", agent)], stream=True).{way}()
    """
    answer = kickoff_of_function(zygote, tmp_path, code).attempt().answer()
    assert isinstance(answer, Succeeded)
    assert answer.output == "a of attempt 1"


def test_a_warm_zygote_has_not_imported_the_tools(zygote: DrivenZygote, tmp_path: Path) -> None:
    assert importlib.util.find_spec("crewai_tools") is not None, "else this test could not fail"
    child = zygote.fork()
    child.run(wild(tmp_path / "project"), tmp_path / child.name, inputs={"do": "self"})
    found = value_of(child.answer())
    assert (found["crewai"], found["tools"]) == (True, [])

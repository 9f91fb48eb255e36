"""Modules that start crews, flows and agents while they are imported, and patches of the methods that start them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from child.conftest import CREWAI
from projects_for_tests.crews import PRELUDE
from projects_for_tests.driver import DrivenZygote
from projects_for_tests.layouts import MAKE
from projects_for_tests.making import Bench, Heard, function_project, written
from windlass.errors import ProjectError
from windlass.kickoffs.states import State
from windlass_child.protocol.messages import Preload, Project, Ready, Succeeded

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [CREWAI, pytest.mark.asyncio(loop_scope="session")]

FLOW = """
import asyncio
from crewai.flow.flow import Flow, start

class Early(Flow):
    _skip_auto_memory = True
    @start()
    def first(self):
        print("ran")
        return "said"

"""

AGENT = "Agent(role='R', goal='G', backstory='B', llm=Parrot(model='parrot'))"

SPANS = """
import functools, os

def traced(method):
    @functools.wraps(method)
    def run(self, *arguments, **named):
        print(f"span of {type(self).__name__}")
        return method(self, *arguments, **named)
    return run

Crew.kickoff = traced(Crew.kickoff)
Flow.kickoff = traced(Flow.kickoff)
"""
TRACED = f"{PRELUDE}{FLOW}{MAKE}{SPANS}"
BOTH = "\n\ndef run():\n    make().kickoff()\n    Early().kickoff()\n    return os.getpid()\n"


@pytest.mark.parametrize(
    "starts",
    [
        "Early().kickoff()",
        "Early().kickoff(inputs={})",
        "asyncio.run(Early().kickoff_async())",
        "if hasattr(Flow, 'akickoff'):\n    asyncio.run(Early().akickoff())\nelse:\n    Early().kickoff()",
        "def main():\n    Early().kickoff()\n\nmain()",
        "first = Flow.kickoff\nFlow.kickoff = lambda self, *a, **k: first(self, *a, **k)\nEarly().kickoff()",
    ],
)
async def test_a_flow_runs_once_in_a_kickoff_and_not_at_its_load(bench: Bench, tmp_path: Path, starts: str) -> None:
    files = {"main.py": f"{FLOW}{starts}\n", "pyproject.toml": '[tool.windlass]\nflow = "main:Early"\n'}
    project, heard = written(tmp_path / "project", files), Heard()
    manifest = await bench.inspect(project)
    assert manifest.kind == "flow"
    outcome = await bench.run(project, heard=heard)
    assert outcome.state is State.SUCCESS, outcome.error
    assert heard.lines("stdout").count("ran") == 1


@pytest.mark.parametrize(
    ("starts", "called"),
    [
        ("Early().kickoff()", "Early.kickoff"),
        ("asyncio.run(Early().kickoff_async())", "Early.kickoff_async"),
        ("make().kickoff_for_each(inputs=[{}])", "Crew.kickoff_for_each"),
        ("make().replay('of-a-task')", "Crew.replay"),
        (f"{AGENT}.kickoff('What?')", "Agent.kickoff"),
    ],
)
async def test_a_function_whose_module_starts_one_at_import_is_refused(
    bench: Bench, tmp_path: Path, starts: str, called: str
) -> None:
    code = f"{PRELUDE}{FLOW}{MAKE}\n{starts}\n\ndef run():\n    return 1\n"
    with pytest.raises(ProjectError, match=rf"starts {called}\(\) while it is imported"):
        await bench.inspect(function_project(tmp_path / "project", code))


@pytest.mark.parametrize("reuse", [0, 20])
async def test_wrappers_that_the_project_sets_at_import_stay(bench: Bench, tmp_path: Path, reuse: int) -> None:
    project = function_project(tmp_path / "project", TRACED + BOTH)
    options: dict[str, Any] = {"reuse": reuse, "version": "of the test"} if reuse else {}
    processes = set()
    for _ in range(2):
        heard = Heard()
        outcome = await bench.run(project, heard=heard, **options)
        assert outcome.state is State.SUCCESS, outcome.error
        processes.add(outcome.json)
        spans = [line for line in heard.lines("stdout") if line in ("span of Crew", "span of Early")]
        assert spans == ["span of Crew", "span of Early"]
    assert len(processes) == (1 if reuse else 2)


async def test_a_wrapper_that_the_first_run_of_a_process_sets_stays_for_the_next(bench: Bench, tmp_path: Path) -> None:
    tracing = """
done = []

def instrument():
    if not done:
        execute = Task._execute_core
        def traced(task, *arguments, **named):
            print("span of a task")
            return execute(task, *arguments, **named)
        Task._execute_core = traced
        done.append(True)
"""
    code = f"{PRELUDE}{MAKE}\nimport os\n{tracing}\n\ndef run():\n    instrument()\n    make().kickoff()\n"
    project = function_project(tmp_path / "project", f"{code}    return os.getpid()\n")
    processes = set()
    for _ in range(2):
        heard = Heard()
        outcome = await bench.run(project, heard=heard, reuse=20, version="of the test")
        assert outcome.state is State.SUCCESS, outcome.error
        processes.add(outcome.json)
        assert heard.lines("stdout").count("span of a task") == 1
    assert len(processes) == 1


async def test_a_child_of_a_preloaded_project_does_not_import_a_started_module_again(tmp_path: Path) -> None:
    files = {"work.py": f"{TRACED}\nprint('imported')\nteam = make()\nteam.kickoff()\n"}
    project = Project("crew", str(written(tmp_path / "project", files)), "work:team")
    with DrivenZygote(tmp_path / "zygote", order=Preload(project, {})) as zygote:
        assert isinstance(zygote.ready(), Ready)
        child = zygote.run(project, tmp_path, topic="tea")
        answer = child.answer()
        assert isinstance(answer, Succeeded), answer
        assert child.printed.count("span of Crew") == 1
        assert "imported" not in child.printed

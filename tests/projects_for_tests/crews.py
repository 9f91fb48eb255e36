"""Small classic crews, written out where a test needs them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from projects_for_tests.making import function_project, written
from windlass_child.protocol.messages import Project

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenChild, DrivenZygote

PYPROJECT = """
    [project]
    name = "work"

    [tool.crewai]
    type = "crew"
"""

PRELUDE = '''
import os

from crewai import LLM, Agent, BaseLLM, Crew, Task
from crewai.project import CrewBase, after_kickoff, agent, before_kickoff, crew, task
from crewai.tasks.conditional_task import ConditionalTask


class Parrot(BaseLLM):
    """Answers without a model."""

    def call(self, messages, *arguments, **named):
        return "Thought: I know\\nFinal Answer: " + os.environ.get("ANSWER", "said")

    def supports_function_calling(self):
        return False

    def get_context_window_size(self):
        return 8192


def worker(**fields):
    return Agent(**{"role": "worker", "goal": "work", "backstory": "none", "llm": Parrot(model="parrot")} | fields)
'''

FLOW_PRELUDE = (
    PRELUDE
    + """
from crewai.flow import Flow, and_, listen, or_, router, start
"""
)

ONE_TASK = """
@CrewBase
class Work:
    @crew
    def crew(self):
        one = worker(llm={llm})
        return Crew(agents=[one], tasks=[Task(description="Work", expected_output="Work", agent=one)])
"""


def crew_project(folder: Path, code: str, package: str = "work") -> Path:
    """A crew whose package lies in the project itself, without a src folder."""
    files = {
        "pyproject.toml": PYPROJECT,
        f"{package}/__init__.py": "",
        f"{package}/crew.py": PRELUDE + textwrap.dedent(code),
    }
    return written(folder, files)


def flow_project(folder: Path, code: str) -> Path:
    """A flow in main.py of the project itself."""
    files = {
        "pyproject.toml": PYPROJECT.replace('"crew"', '"flow"'),
        "main.py": FLOW_PRELUDE + textwrap.dedent(code),
    }
    return written(folder, files)


def one_task(llm: str = 'Parrot(model="parrot")') -> str:
    return ONE_TASK.format(llm=llm)


WAIT_UNTIL_ASKED_TO_END = """
import gc, time
from windlass_child.process.budget import Stopping

def wait_until_asked_to_end():
    (stopping,) = [one for one in gc.get_objects() if isinstance(one, Stopping)]
    while stopping.asked is None:
        time.sleep(0.01)
"""
"""Code of a project that waits until its process has received the Abort."""


def started(zygote: DrivenZygote, folder: Path, code: str, **given: Any) -> DrivenChild:
    """A child that runs the crew of this code."""
    project = Project("crew", str(crew_project(folder / "project", code)), "work.crew")
    return running(zygote, project, folder, **given)


def started_function(zygote: DrivenZygote, folder: Path, code: str, **given: Any) -> DrivenChild:
    project = Project("function", str(function_project(folder / "project", code)), "work:run")
    return running(zygote, project, folder, **given)


def running(zygote: DrivenZygote, project: Project, folder: Path, **given: Any) -> DrivenChild:
    child = zygote.fork()
    child.run(project, folder / "folder", **given)
    return child

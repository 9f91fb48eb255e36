"""Small classic crews, written out where a test needs them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from projects_for_tests.making import written

if TYPE_CHECKING:
    from pathlib import Path

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


def one_task(llm: str = 'Parrot(model="parrot")') -> str:
    return ONE_TASK.format(llm=llm)

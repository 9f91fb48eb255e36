"""crewai collects its traces only for runs that want them, and takes no run for the first of a user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from child.conftest import CREWAI
from projects_for_tests.making import Bench, Heard, function_project, written

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
from crewai import Agent, BaseLLM, Crew, Task
from crewai.events import crewai_event_bus


def collecting():
    handlers = [one for found in crewai_event_bus._sync_handlers.values() for one in found]
    return any("tracing" in one.__module__ for one in handlers)


class Instant(BaseLLM):
    def call(self, *arguments, **named):
        print("collecting" if collecting() else "not collecting")
        return "Thought: I know\\nFinal Answer: done"


def plain(tracing=None):
    agent = Agent(role="r", goal="g", backstory="b", llm=Instant(model="instant"))
    return Crew(agents=[agent], tasks=[Task(description="d", expected_output="e", agent=agent)], tracing=tracing)


def traced():
    return plain(tracing=True)


def run():
    found = [collecting()]
    for tracing in (False, True):
        plain(tracing)
        found.append(collecting())
    return found
"""
WANTED = {"CREWAI_TRACING_ENABLED": "true"}


@pytest.mark.asyncio(loop_scope="session")
@CREWAI
@pytest.mark.parametrize(("environment", "expected"), [({}, [False, False, True]), (WANTED, [True] * 3)])
async def test_traces_of_a_function_are_collected_only_if_they_are_wanted(
    bench: Bench, tmp_path: Path, environment: dict[str, str], expected: list[bool]
) -> None:
    outcome = await bench.run(function_project(tmp_path / "project", CODE), {}, environment)
    assert outcome.json == expected


@pytest.mark.asyncio(loop_scope="session")
@CREWAI
@pytest.mark.parametrize("start", ["fork", "exec"])
@pytest.mark.parametrize(
    ("environment", "name", "expected"),
    [({}, "plain", "not collecting"), ({}, "traced", "collecting"), (WANTED, "plain", "collecting")],
)
async def test_traces_of_a_crew_are_collected_only_if_they_are_wanted(
    bench: Bench, tmp_path: Path, start: str, environment: dict[str, str], name: str, expected: str
) -> None:
    options = f'[tool.windlass]\ncrew = "work:{name}"\n'
    project = written(tmp_path / "project", {"pyproject.toml": options, "work.py": CODE})
    heard = Heard()
    outcome = await bench.run(project, {}, environment, heard, start=start)
    assert (outcome.output, heard.lines("stdout")) == ("done", [expected])

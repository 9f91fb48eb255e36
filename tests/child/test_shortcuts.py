"""Work without an effect, which runs are spared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from child.conftest import CREWAI
from projects_for_tests.making import Bench, function_project

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
import asyncio
from unittest.mock import patch

from crewai import Agent, BaseLLM, Crew, Task
from crewai.agents.agent_executor import AgentExecutor, AgentExecutorState
from crewai.utilities import file_store


class Instant(BaseLLM):
    def call(self, *arguments, **named):
        return "Thought: I know\\nFinal Answer: done"


class Store:
    async def get(self, key):
        await asyncio.sleep(0)
        return {"report": key}


def of_store():
    with patch("asyncio.run", side_effect=AssertionError("no event loop is needed")):
        off = [file_store.get_files("1"), file_store.get_all_files("1", "2"), file_store.clear_files("1")]
    with patch.object(file_store, "_file_store", Store()):
        return [off, file_store.get_all_files("1")]


def states():
    made = []
    init = AgentExecutor.model_post_init

    def noted(executor, context):
        init(executor, context)
        made.append(executor._state)

    with patch.object(AgentExecutor, "model_post_init", noted):
        for _ in range(2):
            agent = Agent(role="r", goal="g", backstory="b", llm=Instant(model="instant"))
            Crew(agents=[agent], tasks=[Task(description="d", expected_output="e", agent=agent)]).kickoff()
    first, second = made
    return [type(first).__name__, type(first) is type(second), isinstance(first, AgentExecutorState)]


def run():
    return [of_store(), states()]
"""


SIGNATURES = """
import inspect


class Own(list):
    pass


class Signature(inspect.Signature):
    pass


def run():
    known = [inspect.signature(one) is inspect.signature(one) for one in (list, tuple, object)]
    return [known, *map(str, (inspect.signature(Own), Signature.from_callable(list), inspect.signature(len)))]
"""


@pytest.mark.asyncio(loop_scope="session")
async def test_signatures_of_built_in_classes_are_read_before_the_fork(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.run(function_project(tmp_path / "project", SIGNATURES), {})
    assert outcome.json == [[True] * 3, "(iterable=(), /)", "(iterable=(), /)", "(obj, /)"]


@pytest.mark.asyncio(loop_scope="session")
@CREWAI
async def test_a_run_makes_no_event_loop_for_a_store_that_is_off_and_no_class_for_each_agent(
    bench: Bench, tmp_path: Path
) -> None:
    outcome = await bench.run(function_project(tmp_path / "project", CODE), {})
    store, states = outcome.json
    assert store == [[None, None, None], {"report": "crew:1"}]
    assert states == ["StateWithId", True, True]

"""Work without an effect, which runs are spared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from child.conftest import CREWAI
from projects_for_tests.making import Bench, function_project

if TYPE_CHECKING:
    from pathlib import Path

CREWS = """
from crewai import Agent, BaseLLM, Crew, Task


class Instant(BaseLLM):
    called = staticmethod(lambda: None)

    def call(self, *arguments, **named):
        self.called()
        return "Thought: I know\\nFinal Answer: done"


def crew(llm=None, **named):
    agent = Agent(role="r", goal="g", backstory="b", llm=llm or Instant(model="instant"), **named)
    return Crew(agents=[agent], tasks=[Task(description="d", expected_output="e", agent=agent)])
"""

CODE = """
import asyncio
from unittest.mock import patch

from crewai.agents.agent_executor import AgentExecutor, AgentExecutorState
from crewai.utilities import file_store


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
            crew().kickoff()
    first, second = made
    return [type(first).__name__, type(first) is type(second), isinstance(first, AgentExecutorState)]


def run():
    return [of_store(), states()]
"""


STEPS = """
import asyncio
import logging
import threading
from unittest.mock import patch

from crewai.events import TaskStartedEvent, crewai_event_bus
from crewai.tools import tool
from pydantic import PrivateAttr

MAIN = threading.main_thread().name
seen = {"model": [], "tool": [], "handler": [], "loops": [], "logged": []}


def noted(what):
    seen[what].append(threading.current_thread().name == MAIN)


class Calls(BaseLLM):
    _left: list = PrivateAttr(default_factory=lambda: ["second", "first"])

    def call(self, messages, *arguments, **named):
        noted("model")
        if self._left:
            used = self._left.pop()
            return f'Thought: use it\\nAction: look\\nAction Input: {{"text": "{used}"}}'
        return "Thought: I know\\nFinal Answer: done"


async def later():
    await asyncio.sleep(0)
    return asyncio.current_task() is not None


@tool("look")
def look(text: str) -> str:
    "Looks at the text."
    noted("tool")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        try:
            loop = asyncio.get_event_loop()
        except RuntimeError:
            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
        seen["loops"].append(id(loop))
        assert asyncio.run(later())
        asyncio.set_event_loop(loop)
        assert loop.run_until_complete(later())
    else:
        raise AssertionError("the tool is in an event loop")
    if text == "second":
        assert str(crew().kickoff()) == "done"
        assert asyncio.run(together()) == ["met", "met"]
    return text


class Meets(BaseLLM):
    _barrier: threading.Barrier = PrivateAttr()

    def __init__(self, barrier):
        super().__init__(model="meets")
        self._barrier = barrier

    def call(self, *arguments, **named):
        self._barrier.wait(60)
        return "Thought: I know\\nFinal Answer: met"


def threads_of(function):
    names = []

    class Named(threading.Thread):
        def start(self):
            names.append(self.name)
            super().start()

    with patch.object(threading, "Thread", Named):
        function()
    return names


class Noted(logging.Handler):
    def emit(self, record):
        seen["logged"].append(record.getMessage())


async def together():
    barrier = threading.Barrier(2)
    return [str(one) for one in await asyncio.gather(*(crew(Meets(barrier)).akickoff() for _ in range(2)))]


def run():
    threads = threads_of(lambda: crew().kickoff())

    @crewai_event_bus.on(TaskStartedEvent)
    def handler(source, event):
        noted("handler")

    logging.getLogger("asyncio").addHandler(Noted())
    results = [str(crew(Calls(model="calls"), tools=[look]).kickoff()), *asyncio.run(together())]
    crewai_event_bus.flush()
    loops = seen.pop("loops")
    return [results, seen, len(loops), len(set(loops)), threads]
"""

THREADS = """
import asyncio
import threading

from crewai.hooks import InterceptionPoint, register_hook, unregister_hook


def run():
    seen = []
    Instant.called = lambda self: seen.append(threading.current_thread() is threading.main_thread())

    def hook(context):
        pass

    crew().kickoff()
    register_hook(InterceptionPoint.EXECUTION_START, hook)
    crew().kickoff()
    unregister_hook(InterceptionPoint.EXECUTION_START, hook)
    crew().kickoff()
    asyncio._nest_patched = True  # as nest_asyncio does
    crew().kickoff()
    return seen
"""

CONTEXT = """
from contextvars import ContextVar

from crewai.agents.agent_executor import AgentExecutor
from crewai.flow import runtime

VARIABLE = ContextVar("variable", default="unset")


class Executor(AgentExecutor):
    async def kickoff_async(self, *arguments, **named):
        VARIABLE.set("of the caller")
        await runtime.asyncio.to_thread(VARIABLE.set, "of the step")
        return [VARIABLE.get(), await runtime.asyncio.to_thread(VARIABLE.get)]


def run():
    return Executor.model_construct(stream=False).kickoff()
"""

REPLACED = """
from unittest.mock import patch

from crewai.agents.agent_executor import AgentExecutor
from crewai.flow.runtime import Flow


def run():
    with patch.object(Flow, "kickoff", lambda flow: "of the library"):
        return [AgentExecutor.model_construct().kickoff(), AgentExecutor.kickoff.__name__]
"""

CONSOLE = """
import threading

from crewai.events import TaskStartedEvent, crewai_event_bus


def run():
    threads = []

    def printed(source, event):
        threads.append(threading.current_thread() is threading.main_thread())
        raise ValueError("no console")

    printed.__module__ = "crewai.events.event_listener"
    crewai_event_bus._sync_handlers.pop(TaskStartedEvent, None)
    crewai_event_bus.on(TaskStartedEvent)(printed)
    future = crewai_event_bus.emit(None, TaskStartedEvent(context="", task=None))
    failed = crewai_event_bus._sync_executor.submit(lambda handlers: 1 / 0, frozenset({printed}))
    return [threads, future.done(), repr(future.exception()), repr(failed.exception())]
"""

PRIVATE = """
from crewai.flow.flow import Flow, start
from pydantic import BaseModel, PrivateAttr
from pydantic.fields import ModelPrivateAttr


def error_of(read):
    try:
        return read()
    except AttributeError as error:
        return str(error)


class Own(Flow):
    _mine: int = PrivateAttr(default=1)

    @start()
    def begin(self):
        self._mine += 1
        return self._mine


def run():
    flow, other = Own(), Flow()
    found = [str(other._pending_events), isinstance(Flow._pending_events, ModelPrivateAttr)]
    other._pending_events = {"set": "value"}
    found.append(other._pending_events)
    del other._pending_events
    for broken in (other, Flow.__new__(Flow)):
        found.append(error_of(lambda: broken._pending_events))
        assert found[-1] == error_of(lambda: BaseModel.__getattr__(broken, "_pending_events"))
    return [*found, flow.kickoff()]
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
    outcome = await bench.run(function_project(tmp_path / "project", CREWS + CODE), {})
    store, states = outcome.json
    assert store == [[None, None, None], {"report": "crew:1"}]
    assert states == ["StateWithId", True, True]


@pytest.mark.asyncio(loop_scope="session")
@CREWAI
async def test_an_agent_that_has_its_event_loop_alone_runs_its_steps_where_it_was_started(
    bench: Bench, tmp_path: Path
) -> None:
    outcome = await bench.run(function_project(tmp_path / "project", CREWS + STEPS), {})
    results, seen, calls, loops, threads = outcome.json
    assert threads == ["CrewAIEventsLoop"]
    assert results == ["done", "met", "met"], "agents that share an event loop don't block it"
    assert seen == {"model": [True] * 3, "tool": [True] * 2, "handler": [False] * 6, "logged": []}
    assert (calls, loops) == (2, 1), "a tool finds the event loop that it has set, as it does in a thread"


@pytest.mark.asyncio(loop_scope="session")
@CREWAI
async def test_a_step_has_a_copy_of_the_context_as_a_thread_does(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.run(function_project(tmp_path / "project", CONTEXT), {})
    assert outcome.json == ["of the caller"] * 2


@pytest.mark.asyncio(loop_scope="session")
@CREWAI
async def test_a_library_may_replace_the_method_that_starts_an_agent(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.run(function_project(tmp_path / "project", REPLACED), {})
    assert outcome.json == ["of the library", "kickoff"]


@pytest.mark.asyncio(loop_scope="session")
@CREWAI
async def test_steps_have_threads_where_other_code_uses_the_event_loop(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.run(function_project(tmp_path / "project", CREWS + THREADS), {})
    assert outcome.json == [True, False, True, False]


@pytest.mark.asyncio(loop_scope="session")
@CREWAI
async def test_the_console_of_crewai_is_called_in_the_thread_of_the_event(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.run(function_project(tmp_path / "project", CONSOLE), {})
    assert outcome.json == [[True], True, "None", "ZeroDivisionError('division by zero')"]


@pytest.mark.asyncio(loop_scope="session")
@CREWAI
async def test_private_attributes_of_flows_are_those_of_pydantic(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.run(function_project(tmp_path / "project", PRIVATE), {})
    first, marked, second, *errors, result = outcome.json
    assert (first, marked, second, result) == ("{}", True, {"set": "value"}, 2)
    assert errors == [
        "'Flow' object has no attribute '_pending_events'",
        "'Flow' object has no attribute '__pydantic_private__'",
    ]

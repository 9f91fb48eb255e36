"""Imports crewai and runs one crew against a fake model, so that lazy imports and caches are filled before the fork.

A child's construction and first kickoff then take a fifth of the time and a third of the memory. The crew runs with the
replacements of a run (windlass_child.replacements). If that fails, all of them are undone: crews of this interpreter
run as without Windlass, and `/ready`, `windlass doctor` and a warning of each kickoff name the failure.
"""

from __future__ import annotations

import json
from contextvars import copy_context
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from windlass_child import replacements
from windlass_child.crewai import capabilities, features
from windlass_child.masking.redaction import Redaction
from windlass_child.process.error_text import one_line, text_of
from windlass_child.process.process_env import environment, replace_environment
from windlass_child.process.report import Report
from windlass_child.protocol.messages import Budget, JournalAppend

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from windlass_child.journal.journal import Journal
    from windlass_child.protocol.messages import Message

    Watching = Callable[..., AbstractContextManager[None]]

ADDRESS = "http://model.invalid/v1"
ANSWER = "Thought: warm\nFinal Answer: warm"


def warm(watching: Watching) -> None:
    """`watching` is that of the adapter (frameworks.Adapter)."""
    # releases before 0.108 read no other switch of their telemetry, and send from their import on
    replace_environment({**environment(), "OTEL_SDK_DISABLED": "true"})
    import crewai

    for kind in ("crew", "flow"):
        import_module(f"windlass_child.kinds.{kind}")
    capabilities.found()
    try:
        import_module("windlass_child.crewai.events").end_first_run()
        import_module("windlass_child.crewai.flow_shape").own_attributes()
        with import_module("windlass_child.crewai.kickoffs").refused():  # imports the classes whose methods it replaces
            pass
        executor = features.optional("crewai.agents.agent_executor:AgentExecutor")
        if executor is not None:
            executor.flow_definition()
        copy_context().run(kick_off, watching)  # no run inherits the context variables of this one
    except Exception as error:  # noqa: BLE001 - code of crewai may raise anything; the server reports the failure
        replacements.give_up(one_line(f"crewai {crewai.__version__}: {type(error).__name__}: {text_of(error)}"))
    stop_threads()


def stop_threads() -> None:
    from windlass_child.crewai import bus

    bus.stop_threads()


def kick_off(watching: Watching) -> None:
    """Kicks off a crew with all replacements that a run of the project has, and undoes them.

    Raises an exception if crewai can't run the crew with them.
    """
    from crewai import Agent, Crew, Task
    from crewai.tools import tool

    def warm_tool(text: str) -> str:
        """Returns the text unchanged."""
        return text

    agent = Agent(role="warm", goal="warm", backstory="warm", llm=fake_model(), tools=[tool("warm")(warm_tool)])
    task = Task(description="warm {up}", expected_output="warm", agent=agent)
    crew = Crew(agents=[agent], tasks=[task], name="warm")
    try:
        with watched(watching):
            output = crew.kickoff(inputs={"up": "up"})
    finally:
        replacements.undo(*replacements.NAMES)
    if "warm" not in str(output):
        raise ValueError(f"a crew whose model answers warm returned {str(output)[:40]!r}")


def watched(watching: Watching) -> AbstractContextManager[None]:
    """Watches the crew as a run does. Nobody receives the reports."""
    receiver = Receiver()
    report = Report(receiver, Redaction({}, []))
    receiver.journal = report.journal
    order: Any = SimpleNamespace(budget=Budget())
    return watching(order, report, 0)


class Receiver:
    """Stands for a server that commits each journal entry at once."""

    journal: Journal

    def send(self, message: Message) -> None:
        if isinstance(message, JournalAppend):
            self.journal.written(message.number)


def fake_model() -> Any:
    """Returns a model with a mocked transport, or one that is no client at all where crewai calls models by LiteLLM."""
    try:
        import httpx
        from openai import OpenAI
    except ImportError:  # crewai runs without them
        return silent_model()
    from crewai import LLM

    llm = LLM(model="openai/gpt-4o-mini", api_key="none", base_url=ADDRESS)
    name = next((name for name in ("_client", "client") if hasattr(llm, name)), None)
    if name is None:
        return silent_model()
    client = httpx.Client(
        transport=httpx.MockTransport(lambda request: httpx.Response(200, json=completion(request.content)))
    )
    setattr(llm, name, OpenAI(api_key="none", base_url=ADDRESS, http_client=client))
    return llm


def silent_model() -> Any:
    base: Any = features.first_of("crewai.llm:LLM")

    class Silent(base):  # type: ignore[misc]  # its base is known only when crewai is imported
        def call(self, *_: Any, **__: Any) -> str:
            return ANSWER

        def supports_stop_words(self) -> bool:
            return True

    return Silent(model="gpt-4o-mini", api_key="none", base_url=ADDRESS)


def completion(request: bytes) -> dict[str, Any]:
    message = {"role": "assistant", "content": ANSWER}
    return {
        "id": "warm",
        "object": "chat.completion",
        "created": 1,
        "model": json.loads(request)["model"],
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }

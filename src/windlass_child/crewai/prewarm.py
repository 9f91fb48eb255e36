"""Imports crewai and runs one crew against a fake model, so that lazy imports and caches are filled before the fork.

A child's construction and first kickoff then take a fifth of the time and a third of the memory.
"""

# ruff: noqa: SLF001 - crewai has no public way to pause its threads, or to set the client of a model

from __future__ import annotations

import json
import logging
from importlib import import_module
from typing import Any

ADDRESS = "http://model.invalid/v1"


def warm() -> None:
    import crewai
    from crewai.agents.agent_executor import AgentExecutor

    import_module("windlass_child.kinds.crew")
    try:
        AgentExecutor.flow_definition()
        kick_off()
    except Exception:
        # another crewai release may have moved these internals; its crews start slower, but they run
        logging.getLogger(__name__).warning("crewai %s could not be warmed up", crewai.__version__, exc_info=True)
    stop_bus_threads()


def kick_off() -> None:
    from crewai import Agent, Crew, Task
    from crewai.tools import tool

    def warm_tool(text: str) -> str:
        """Returns the text unchanged."""
        return text

    agent = Agent(role="warm", goal="warm", backstory="warm", llm=fake_model(), tools=[tool("warm")(warm_tool)])
    task = Task(description="warm {up}", expected_output="warm", agent=agent)
    Crew(agents=[agent], tasks=[task], name="warm").kickoff(inputs={"up": "up"})


def fake_model() -> Any:
    import httpx
    from crewai import LLM
    from openai import OpenAI

    llm = LLM(model="openai/gpt-4o-mini", api_key="none", base_url=ADDRESS)
    client = httpx.Client(
        transport=httpx.MockTransport(lambda request: httpx.Response(200, json=completion(request.content)))
    )
    llm._client = OpenAI(api_key="none", base_url=ADDRESS, http_client=client)
    return llm


def completion(request: bytes) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Thought: warm\nFinal Answer: warm"}
    return {
        "id": "warm",
        "object": "chat.completion",
        "created": 1,
        "model": json.loads(request)["model"],
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def stop_bus_threads() -> None:
    """Stops the threads of crewai's event bus before a fork. The bus restarts them when it needs them.

    A fork copies no threads, so a child of a process with a started bus would wait for ever. The bus's own `shutdown`
    is not used, because it is final and removes the listeners.
    """
    from crewai.events.event_bus import crewai_event_bus as bus

    bus.flush(10)
    if bus._executor_initialized:
        bus._loop.call_soon_threadsafe(bus._loop.stop)
        bus._loop_thread.join(10)
        bus._loop.close()
        bus._sync_executor.shutdown(wait=True)
        bus._executor_initialized = False
        bus._pending_futures.clear()
        bus._has_pending_events = False

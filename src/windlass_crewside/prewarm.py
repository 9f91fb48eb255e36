"""Imports crewai and runs one crew against a model that is none: children find all that is lazy done already.

A child's construction and first kickoff take a fifth of the time, and a third of the memory.
"""

# ruff: noqa: SLF001 - crewai has no public way to stop its threads for a while, or to give a model its client

from __future__ import annotations

import json
import logging
from importlib import import_module
from typing import Any

ADDRESS = "http://model.invalid/v1"


def warm() -> None:
    import crewai
    from crewai.agents.agent_executor import AgentExecutor

    import_module("windlass_crewside.frameworks.crew")
    try:
        AgentExecutor.flow_definition()
        kick_off()
    except Exception:
        # another release may have moved what this touches; its crews start slower, and run
        logging.getLogger(__name__).warning("crewai %s could not be warmed up", crewai.__version__, exc_info=True)
    stop_bus_threads()


def kick_off() -> None:
    from crewai import Agent, Crew, Task
    from crewai.tools import tool

    def warm_tool(text: str) -> str:
        """Nothing."""
        return text

    agent = Agent(role="warm", goal="warm", backstory="warm", llm=model_that_is_none(), tools=[tool("warm")(warm_tool)])
    task = Task(description="warm {up}", expected_output="warm", agent=agent)
    Crew(agents=[agent], tasks=[task], name="warm").kickoff(inputs={"up": "up"})


def model_that_is_none() -> Any:
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
    """A fork copies no thread: a child that finds the bus started waits for ever. It starts again by itself.

    Not the bus's own `shutdown`, which is final and forgets its listeners.
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

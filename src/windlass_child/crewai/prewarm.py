"""Imports crewai and runs one crew against a fake model, so that lazy imports and caches are filled before the fork.

A child's construction and first kickoff then take a fifth of the time and a third of the memory.
"""

from __future__ import annotations

import json
import logging
from importlib import import_module
from typing import Any

from windlass_child.crewai import capabilities
from windlass_child.process.process_env import environment, replace_environment

ADDRESS = "http://model.invalid/v1"
ANSWER = "Thought: warm\nFinal Answer: warm"


def warm() -> None:
    # releases before 0.108 read no other switch of their telemetry, and send from their import on
    replace_environment({**environment(), "OTEL_SDK_DISABLED": "true"})
    import crewai

    for kind in ("crew", "flow"):
        import_module(f"windlass_child.kinds.{kind}")
    import_module("windlass_child.crewai.events").end_first_run()
    capabilities.found()
    import_module("windlass_child.crewai.flow_shape").own_attributes()
    with import_module("windlass_child.crewai.kickoffs").refused():  # imports the classes whose methods it replaces
        pass
    try:
        executor = capabilities.optional("crewai.agents.agent_executor:AgentExecutor")
        if executor is not None:
            executor.flow_definition()
        kick_off()
    except Exception:
        # another crewai release may have moved these internals; its crews start slower, but they run
        logging.getLogger(__name__).warning("crewai %s could not be warmed up", crewai.__version__, exc_info=True)
    stop_threads()


def stop_threads() -> None:
    from windlass_child.crewai import bus

    bus.stop_threads()


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
    """Returns a model with a mocked transport, or one that is no client at all where crewai calls models by LiteLLM."""
    import httpx
    from crewai import LLM
    from openai import OpenAI

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
    base: Any = capabilities.first_of("crewai.llm:LLM")

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

"""The offline model on a port of loopback, for clients of any kind."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import openai
import uvicorn

from windlass.offline_model.rules import Rule
from windlass.offline_model.script import Script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from openai.types.chat import ChatCompletion
    from starlette.types import ASGIApp

SECONDS_TO_STOP = 60


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """Its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(SECONDS_TO_STOP)
    assert not thread.is_alive()


@contextmanager
def asked(app: ASGIApp, retries: int = 0) -> Iterator[openai.OpenAI]:
    """The real client of it."""
    with served(app) as address, client_of(address, retries) as client:
        yield client


def client_of(address: str, retries: int = 0) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=retries)


def ask(client: openai.OpenAI, *prompts: str, **more: Any) -> ChatCompletion:
    messages: Any = [{"role": "user", "content": prompt} for prompt in prompts]
    completion: ChatCompletion = client.chat.completions.create(**{"model": "gpt-4o", "messages": messages, **more})
    return completion


def text_of(completion: ChatCompletion) -> str:
    return completion.choices[0].message.content or ""


def called_by(completion: ChatCompletion) -> list[tuple[str, str]]:
    """Tools and their arguments."""
    calls = completion.choices[0].message.tool_calls or []
    return [(call.function.name, call.function.arguments) for call in calls if call.type == "function"]


def with_tool_outputs(prompt: str, called: ChatCompletion, *outputs: str) -> list[dict[str, Any]]:
    """The messages that follow the calls of an answer."""
    call = called.choices[0].message.model_dump(exclude_none=True)
    given = zip(call["tool_calls"], outputs, strict=True)
    told = [{"role": "tool", "tool_call_id": one["id"], "content": output} for one, output in given]
    return [{"role": "user", "content": prompt}, call, *told]


def script(*rules: dict[str, Any], strict: bool = False) -> Script:
    return Script([Rule.model_validate(rule) for rule in rules], strict=strict)

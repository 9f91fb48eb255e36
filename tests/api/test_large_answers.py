"""A status of many megabytes goes out piece by piece and is whole; others are answered in between."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.responses import StreamingResponse

from windlass.aio import LARGE
from windlass.api.streaming_json import json_text

pytestmark = pytest.mark.unit


async def sent(parts: list[str]) -> tuple[dict[str, str], list[bytes]]:
    """Head and pieces of the answer, as the server is given them."""
    response = await json_text(parts)
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        raise AssertionError("the answer asks for nothing")

    scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
    await response(scope, receive, send)
    head = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    return head, [message["body"] for message in messages[1:] if message["body"]]


@pytest.mark.parametrize("letter", ["a", "é", "\N{HIRAGANA LETTER A}", "\N{TEACUP WITHOUT HANDLE}"])
@pytest.mark.parametrize("size", [LARGE - 2, LARGE - 1, LARGE, 3 * LARGE + 1])
async def test_an_answer_of_any_size_is_what_its_parts_say(size: int, letter: str) -> None:
    parts = ['{"output":', json.dumps(letter * size, ensure_ascii=False), "}"]
    head, pieces = await sent(parts)
    body = b"".join(pieces)
    assert json.loads(body) == {"output": letter * size}
    assert head == {"content-length": str(len(body)), "content-type": "application/json"}


async def test_a_large_answer_is_sent_in_pieces() -> None:
    _, pieces = await sent(["x" * (10 * LARGE)])
    assert len(pieces) == 10
    assert isinstance(await json_text(["x" * LARGE, "y"]), StreamingResponse)


async def test_a_small_answer_is_sent_at_once() -> None:
    head, pieces = await sent(["{", "}"])
    assert (pieces, head["content-length"]) == ([b"{}"], "2")

"""A secret in the answer of a model that is streamed is masked, also where the border of two chunks divides it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass_child.masking.chunks import MOST_CALLS, Chunks
from windlass_child.masking.redaction import Redaction
from windlass_child.masking.secret_values import MASK, SecretValues
from windlass_child.process.report import Report
from windlass_child.protocol.messages import Event, Message, Succeeded

pytestmark = pytest.mark.unit


SECRET = "Xk29vQ7mT4zR8bLw"
SECRETS = SecretValues({"TOKEN": SECRET})
ANSWER = f"The token is {SECRET}, and again {SECRET}. Xk29vQ was its beginning"


class Worker:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def send(self, message: Message) -> None:
        if isinstance(message, Event):
            self.events.append(message)


def texts(events: list[tuple[str, dict[str, Any]]], kind: str = "llm_stream_chunk") -> str:
    return "".join(payload["chunk"] for one, payload in events if one == kind)


def divided(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@given(st.integers(1, 30))
def test_a_divided_secret_is_masked(size: int) -> None:
    chunks = Chunks(SECRETS)
    events = [
        event
        for part in divided(ANSWER, size)
        for event in chunks.take("llm_stream_chunk", {"call_id": "1", "chunk": part})
    ]
    events += chunks.take("llm_call_completed", {"call_id": "1"})
    assert texts(events) == ANSWER.replace(SECRET, MASK)
    assert events[-1] == ("llm_call_completed", {"call_id": "1"}), "the rest comes before the end"


def test_calls_side_by_side_are_not_mixed() -> None:
    chunks = Chunks(SECRETS)
    first, second = ({"call_id": one, "chunk": ""} for one in "12")
    events = chunks.take("llm_stream_chunk", {**first, "chunk": SECRET[:8]})
    events += chunks.take("llm_thinking_chunk", {**first, "chunk": SECRET[8:]})
    events += chunks.take("llm_stream_chunk", {**second, "chunk": SECRET[8:]})
    events += chunks.take("llm_stream_chunk", {**first, "chunk": SECRET[8:] + "!"})
    assert [payload["chunk"] for _, payload in events] == ["", SECRET[8:], SECRET[8:], f"{MASK}!"]


def test_the_arguments_of_a_tool_are_a_stream_too() -> None:
    chunks = Chunks(SECRETS)

    def take(arguments: str) -> str:
        tool = {"index": 0, "function": {"name": "post", "arguments": arguments}}
        ((_, payload),) = chunks.take("llm_stream_chunk", {"call_id": "1", "chunk": "", "tool_call": tool})
        found: str = payload["tool_call"]["function"]["arguments"]
        return found

    assert [take('{"token": "Xk29v'), take('Q7mT4zR8bLw"}'), take("Xk")] == ['{"token": "', f'{MASK}"}}', ""]
    ((_, rest),) = chunks.end()
    assert rest["tool_call"]["function"] == {"name": "post", "arguments": "Xk"}


@pytest.mark.parametrize("payload", [{}, {"chunk": 1}, {"chunk": "x", "tool_call": {"function": []}}])
def test_other_forms_of_chunks_are_left(payload: dict[str, Any]) -> None:
    assert Chunks(SECRETS).take("llm_stream_chunk", payload) == [("llm_stream_chunk", payload)]


def test_calls_without_an_end_are_given_out_when_they_are_too_many() -> None:
    chunks = Chunks(SECRETS)
    given = [
        event
        for call in range(MOST_CALLS + 2)
        for event in chunks.take("llm_stream_chunk", {"call_id": str(call), "chunk": "Xk29"})
    ]
    assert [payload["call_id"] for _, payload in given if payload["chunk"]] == ["0"]


def test_a_run_sends_the_rest_before_its_result() -> None:
    worker = Worker()
    report = Report(worker, Redaction({"TOKEN": SECRET}, ["TOKEN"]))
    report.event("llm_stream_chunk", {"call_id": "1", "chunk": "it begins Xk29"})
    report.send(Succeeded("done"))
    assert [event.payload["chunk"] for event in worker.events] == ["it begins ", "Xk29"]


def test_without_secrets_nothing_is_held_back() -> None:
    worker = Worker()
    report = Report(worker, Redaction({"TOKEN": SECRET}))
    report.event("llm_stream_chunk", {"call_id": "1", "chunk": SECRET[:8]})
    assert [event.payload["chunk"] for event in worker.events] == [SECRET[:8]]

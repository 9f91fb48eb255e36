"""What can be no result is refused in words."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

from windlass_child import results
from windlass_child.process.error_text import ProjectFault, explain
from windlass_child.process.redaction import Redaction
from windlass_child.process.report import Report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from windlass_child.process.messages import Message


class Listening:
    """The worker's end of a report."""

    def __init__(self) -> None:
        self.heard: list[Message] = []

    def send(self, message: Message) -> None:
        self.heard.append(message)


class Wordless:
    def __str__(self) -> str:
        raise LookupError


def generated() -> Iterator[int]:
    yield 1


async def generated_later() -> AsyncIterator[int]:
    yield 1


async def answered() -> int:
    return 1


ROUND: list[Any] = []
ROUND.append(ROUND)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Wordless(), "the result is a Wordless, which is not JSON, and has no text: LookupError: without a message."),
        (10**5000, "the result is a int, which is not JSON, and has no text: ValueError: Exceeds the limit"),
        (generated(), "the crew's code returned a generator, which is no result."),
        (generated_later(), "the crew's code returned a generator, which is no result."),
    ],
    ids=["object", "number", "generator", "async generator"],
)
def test_what_can_be_no_result_is_told_and_nothing_is_said_to_be_taken(value: Any, words: str) -> None:
    channel = Listening()
    with pytest.raises(ProjectFault) as caught:
        results.of_any(value, Report(channel, Redaction({})))
    told = explain(caught.value, "run", "/project")
    assert told.message.startswith(words)
    assert told.hint.startswith("Return ")
    assert channel.heard == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [answered()]}, "returned a coroutine, which nothing awaited at a[0], which is no result"),
        ([Listening], "returned a class at [0]"),
        ({"f": generated}, "returned a function at f"),
        (pytest, "returned a module, which is no result"),
        (map(str, [1]), "returned an iterator"),
        ([Future()], "returned a future at [0]"),
        (ROUND, "the result contains itself at [0]"),
    ],
    ids=["coroutine", "class", "function", "module", "iterator", "future", "circle"],
)
def test_what_is_no_result_is_refused_at_every_depth(value: Any, words: str) -> None:
    with pytest.raises(ProjectFault) as caught:
        results.of_any(value, Report(Listening(), Redaction({})))
    assert words in caught.value.message

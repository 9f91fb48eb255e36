"""What can be no result is refused in words."""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from windlass_child import results
from windlass_child.masking.redaction import Redaction
from windlass_child.process.error_text import ProjectFault, explain
from windlass_child.process.report import Report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from windlass_child.protocol.messages import Message


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


SOCKET, POOL = socket.socket(), ThreadPoolExecutor(1)
SOCKET.close()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [answered()]}, "returned a coroutine, which nothing awaited at a[0], which is no result"),
        ([Listening], "returned a class at [0]"),
        ({"f": generated}, "returned a function at f"),
        (pytest, "returned a module, which is no result"),
        (map(str, [1]), "returned an iterator"),
        ([Future()], "returned a future at [0]"),
        ([ValueError("no tea")], "returned an exception, ValueError: no tea at [0]"),
        (threading.Thread(target=print), "returned a thread, which is no result"),
        ({"lock": threading.Lock()}, "returned a lock at lock"),
        (threading.RLock(), "returned a lock"),
        (asyncio.Lock(), "returned a lock"),
        (io.StringIO("tea"), "returned a file"),
        (SOCKET, "returned a socket"),
        (multiprocessing.Process(target=print), "returned a process"),
        (POOL, "returned a pool of workers"),
        (ROUND, "the result contains itself at [0]"),
    ],
    ids=[
        "coroutine",
        "class",
        "function",
        "module",
        "iterator",
        "future",
        "exception",
        "thread",
        "lock",
        "rlock",
        "asyncio",
        "file",
        "socket",
        "process",
        "pool",
        "circle",
    ],
)
def test_what_is_no_result_is_refused_at_every_depth(value: Any, words: str) -> None:
    with pytest.raises(ProjectFault) as caught:
        results.of_any(value, Report(Listening(), Redaction({})))
    assert words in caught.value.message


def test_files_and_processes_that_are_open_are_no_results(tmp_path: Path) -> None:
    with (
        (tmp_path / "a").open("wb") as file,
        tempfile.NamedTemporaryFile(dir=tmp_path) as temporary,
        subprocess.Popen([sys.executable, "-c", "pass"]) as process,
    ):
        for value, words in ((file, "a file"), (temporary, "a file"), (process, "a process")):
            with pytest.raises(ProjectFault) as caught:
                results.of_any(value, Report(Listening(), Redaction({})))
            assert caught.value.message == f"the crew's code returned {words}, which is no result"

"""Between processes: what a pool's worker raises or returns reaches whoever waits for it."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from typing import Any

import pytest

from cli.fake_crew import completed, failed, running, task, waiting
from windlass import client
from windlass.client import (
    CrewError,
    Event,
    File,
    HumanInput,
    Inputs,
    Kickoff,
    KickoffFailed,
    Refused,
    Result,
    Resumed,
    Status,
    StillRunning,
    Stopped,
    Unreachable,
)

pytestmark = pytest.mark.unit


EXPORTED = [getattr(client, name) for name in client.__all__]
ERRORS = [kind for kind in EXPORTED if issubclass(kind, CrewError)]
DONE = Status.of(
    completed(
        task("research", "completed", started_at="2026-01-02T03:04:05Z"),
        warnings=[{"code": "a", "message": "b", "task_id": "c"}],
    )
)
WAITS = Status.of(waiting("time", "its time", 1))
VALUES = [
    DONE,
    WAITS,
    Result.of({"result": {"output": "a", "json": {"a": [1]}, "tasks": [{"task_id": "b"}]}}),
    Inputs(["topic"], {"type": "object"}),
    Stopped("a", "FAILED", "b"),
    Resumed("a", "resumed", "b"),
    HumanInput("a", "b", None, "c", "d", ["e"], None, None),
    Event(1, 1, "task_started", datetime(2026, 1, 2, tzinfo=UTC), {"task_name": "plan"}),
    File("report.md", 3, "ab", "text/markdown"),
    Kickoff({"topic": "tea"}, {"a": 1}, "b", {"priority": 5}),
]


def example(kind: type[CrewError]) -> CrewError:
    """With something in each of its attributes."""
    if issubclass(kind, Refused):
        return kind(418, "It is a teapot.", "Ask a pot of coffee.", details={"a": ["b"]}, retry_after=2.5)
    made: dict[type[CrewError], CrewError] = {
        CrewError: CrewError("It is broken.", "Mend it."),
        Unreachable: Unreachable("It is away.", "Call it.", was_sent=False),
        KickoffFailed: KickoffFailed(Status.of(failed())),
        StillRunning: StillRunning(Status.of(running(task("research", "running"))), 5),
    }
    return made[kind]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_that_was_pickled_is_what_it_was(kind: type[CrewError], protocol: int) -> None:
    error = example(kind)
    for there in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
        assert type(there) is kind
        assert vars(there) == vars(error)
        assert (str(there), repr(there), there.args) == (str(error), repr(error), error.args)
        assert (there.status, there.retry_after, there.may_pass) == (error.status, error.retry_after, error.may_pass)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_that_was_pickled_is_what_it_was(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


def test_every_exported_value_is_among_them() -> None:
    kinds = {type(value) for value in [*VALUES, *DONE.tasks, *DONE.warnings, WAITS.waiting_for]}
    assert kinds | {client.TaskOutput, client.Crew, client.AsyncCrew, *ERRORS} == set(EXPORTED)


def test_what_a_worker_of_a_pool_raises_reaches_who_waits_for_it() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool, pytest.raises(KickoffFailed) as raised:
        pool.submit(raise_it).result()
    assert raised.value.kickoff.error == "KeyError: 'topic'"


def raise_it() -> None:
    raise example(KickoffFailed)

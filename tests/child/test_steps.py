"""Steps of a function, seen from the worker's end: what is told of them, and what becomes of what they gave."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from windlass_child.journal.journal import Journal
from windlass_child.kinds.function import LoadedFunction
from windlass_child.masking.redaction import Redaction
from windlass_child.process.error_text import InputsRefused, ProjectFault
from windlass_child.process.report import Report
from windlass_child.protocol.messages import (
    Event,
    JournalAppend,
    JournalReplay,
    Message,
    ProcessEnvironment,
    Project,
    Run,
    Succeeded,
    TaskEnded,
    TaskStarted,
    Warned,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = pytest.mark.unit


class Offered(Protocol):
    """What a project may annotate its parameter with (docs/concepts/steps.md)."""

    def run(self, name: str, work: Callable[..., Any], /, *arguments: Any) -> Any: ...

    async def arun(self, name: str, work: Callable[..., Any], /, *arguments: Any) -> Any: ...

    def step(self, named: Any, /) -> Any: ...


class Worker:
    """The worker's end: what is journaled is written at once."""

    def __init__(self) -> None:
        self.heard: list[Message] = []
        self.journal = Journal(self)
        self.report = Report(self, Redaction({}), journal=self.journal)

    def send(self, message: Message) -> None:
        self.heard.append(message)
        if isinstance(message, JournalAppend):
            self.journal.written(message.number)

    def of(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.heard if isinstance(message, kind)]

    def entries(self) -> list[JournalReplay]:
        return [JournalReplay(entry.number, entry.key, entry.record) for entry in self.of(JournalAppend)]

    def tasks(self) -> list[tuple[int, str]]:
        """Of its steps, how they ended."""
        return [(end.position, end.state) for end in self.of(TaskEnded) if end.position > 0]


class Killed(BaseException):
    pass


def attempt(
    function: Any, entries: Sequence[JournalReplay] = (), worker: Worker | None = None, **inputs: Any
) -> Worker:
    worker = worker or Worker()
    for entry in entries:
        worker.journal.remember(entry)
    order = Run("id", 1, Project("function", "/", "a:b"), ProcessEnvironment({}, "/"), inputs)
    worker.heard.append(LoadedFunction(function).run(order, worker.report))
    return worker


def killed(function: Any, **inputs: Any) -> Worker:
    worker = Worker()
    with pytest.raises(Killed):
        attempt(function, worker=worker, **inputs)
    return worker


def result(worker: Worker) -> Any:
    (found,) = worker.of(Succeeded)
    return json.loads(found.structured) if found.structured else found.output


Program = list[tuple[str, int | None]]
"""Names of steps, and what each is given."""


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "a/b", "é %"]), st.none() | st.integers(0, 1)), max_size=6),
    st.integers(0, 6),
)
def test_whenever_a_function_is_killed_each_step_is_paid_for_once(program: Program, finished: int) -> None:
    calls: list[int] = []
    dying = [True]

    def function(steps: Offered, dies: bool) -> Any:
        found: list[Any] = []
        dying[:] = [dies]

        def work(number: int | None) -> dict[str, int | None]:
            if dying[0] and len(found) == finished:
                raise Killed
            calls.append(len(found))
            return {"at": len(found), "number": number}

        for name, number in program:
            found.append(steps.run(name, work, number))
        return found

    expected = [{"at": at, "number": number} for at, (_, number) in enumerate(program)]
    if finished < len(program):
        first = killed(function, dies=True)
        second = attempt(function, first.entries(), dies=False)
    else:
        first = attempt(function, dies=True)
        second = attempt(function, first.entries(), dies=False)
    assert result(second) == expected
    assert calls == list(range(len(program)))
    assert second.of(Warned) == []


class Place(BaseModel):
    name: str


@dataclasses.dataclass
class Tide:
    place: Place
    hours: tuple[int, ...]


@pytest.mark.parametrize(
    "value", [None, "text", [1, {"a": 2.5}], {1, 2}, Place(name="Rye"), Tide(Place(name="Rye"), (1, 2))]
)
def test_what_a_step_gave_comes_back_as_what_it_was(value: Any) -> None:
    found: list[Any] = []
    given: list[Any] = [value]

    def function(steps: Offered, dies: bool) -> Any:
        found.append(steps.run("step", given.pop))
        steps.run("end", end, dies)

    attempt(function, killed(function, dies=True).entries(), dies=False)
    assert found == [value, value]
    assert type(found[1]) is type(value)


def end(dies: bool) -> None:
    if dies:
        raise Killed


def test_what_can_not_be_kept_is_told_once_and_run_again() -> None:
    calls = Counter[str]()

    def function(steps: Offered, dies: bool) -> Any:
        for _ in range(2):
            steps.run("client", lambda: calls.update(["client"]) or object())
        steps.run("end", end, dies)

    first = killed(function, dies=True)
    (warned,) = first.of(Warned)
    assert (warned.code, warned.message) == (
        "not_journaled",
        "the step client is run again if the kickoff is interrupted after it: a object has no form in the journal",
    )
    attempt(function, first.entries(), dies=False)
    assert calls == {"client": 4}


def test_an_entry_that_does_not_fit_is_told_and_its_step_run_again() -> None:
    def function(steps: Offered) -> Any:
        return steps.run("step", lambda: "new")

    (entry,) = attempt(function).entries()
    record = entry.record.replace('"new"', '{"$":"class","of":"no:where"}')
    second = attempt(function, [dataclasses.replace(entry, record=record)])
    assert result(second) == "new"
    (warned,) = second.of(Warned)
    assert (warned.code, warned.message) == ("journal_unfit", "the step step is run again: there is no class no:where")


def test_a_step_that_is_given_something_else_is_another_one_and_what_was_paid_for_is_told() -> None:
    def function(steps: Offered, hour: int) -> Any:
        return steps.run("step", lambda hour: hour, hour)

    second = attempt(function, attempt(function, hour=1).entries(), hour=2)
    assert result(second) == 2
    assert [warned.code for warned in second.of(Warned)] == ["journal_unused"]


def test_a_step_that_fails_is_told_and_tried_again_in_its_own_place() -> None:
    tries: list[int] = []

    def work() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise LookupError("away")
        return "there"

    def function(steps: Offered, dies: bool) -> Any:
        try:
            steps.run("work", work)
        except LookupError:
            steps.run("work", work)
        steps.run("end", end, dies)
        return len(tries)

    first = killed(function, dies=True)
    assert first.tasks() == [(1, "failed"), (1, "completed"), (2, "failed")]
    second = attempt(function, first.entries(), dies=False)
    assert result(second) == 2, "the one that was finished is found at the first try"
    assert second.tasks() == [(2, "completed")]


def test_a_failed_step_fails_the_run_with_its_own_error() -> None:
    def function(steps: Offered) -> Any:
        steps.run("work", [].pop)

    worker = Worker()
    with pytest.raises(IndexError):
        attempt(function, worker=worker)
    assert [(end.position, end.state) for end in worker.of(TaskEnded)] == [(1, "failed"), (0, "failed")]


def test_task_records_tell_of_the_output_and_the_time() -> None:
    def function(steps: Offered) -> Any:
        steps.run("work", lambda: {"é": 1})

    worker = attempt(function)
    begun, ended = worker.of(TaskStarted)[1], worker.of(TaskEnded)[0]
    assert (begun.position, begun.name, begun.agent) == (ended.position, "work", None) == (1, "work", None)
    assert (ended.output, ended.seconds) == ('{"é": 1}', ended.at - begun.at)


def test_another_step_does_not_take_the_task_record_of_one_that_was_finished() -> None:
    def function(steps: Offered, first: bool) -> Any:
        for name in ("x", "y", "end") if first else ("z", "w", "y"):
            steps.run(name, end, first and name == "end")

    second = attempt(function, killed(function, first=True).entries()[1:], first=False)
    assert [(one.position, one.name) for one in second.of(TaskStarted)[1:]] == [(1, "z"), (3, "w")]


def test_a_step_in_a_thread_is_within_the_step_that_started_the_thread() -> None:
    def function(steps: Offered) -> Any:
        def outer() -> None:
            thread = threading.Thread(target=steps.run, args=("inner", end, False))
            thread.start()
            thread.join()

        steps.run("outer", outer)

    inner, outer = attempt(function).of(JournalAppend)
    assert inner.key.startswith(f"{outer.key}/")


def test_functions_become_steps_by_a_decorator() -> None:
    def function(steps: Offered) -> Any:
        @steps.step
        def plain(a: int, b: int = 2) -> int:
            """Adds."""
            return a + b

        async def one_more(a: int) -> int:
            return a + 1

        meanwhile = steps.step("other")(one_more)
        assert inspect.iscoroutinefunction(meanwhile)
        assert (str(inspect.signature(plain)), plain.__doc__) == ("(a: 'int', b: 'int' = 2) -> 'int'", "Adds.")
        return [plain(1, b=5), asyncio.run(meanwhile(1))]

    worker = attempt(function)
    assert result(worker) == [6, 2]
    assert [one.name for one in worker.of(TaskStarted)[1:]] == ["plain", "other"]
    again = attempt(function, worker.entries())
    assert result(again) == [6, 2]
    assert [event.payload for event in again.of(Event)] == [{"tasks": ["plain", "other"], "methods": []}]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda steps: steps.run("a", 3), "the step a was given a int and no function"),
        (lambda steps: steps.run(len, len), "a step was given a builtin_function_or_method for its name"),
        (lambda steps: steps.run("", len), "a step was given a str for its name"),
        (lambda steps: steps.run("a", asyncio.sleep, 0), "the step a gave something to await"),
        (
            lambda steps: asyncio.run(steps.arun("a", asyncio.sleep(0))),
            "the step a was given a coroutine and no function",
        ),
    ],
)
def test_what_is_no_step_is_told_in_words(call: Callable[[Any], Any], words: str) -> None:
    def function(steps: Offered) -> Any:
        return call(steps)

    with pytest.raises(ProjectFault) as caught:
        attempt(function)
    assert caught.value.message == words
    assert "steps." in caught.value.hint


def test_the_parameter_is_no_input() -> None:
    def bare(topic: str, steps): ...  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202

    def keyword(topic: str, *, steps: Offered | None = None) -> None: ...

    def protocol(steps: Offered, topic: str) -> None: ...

    for function in bare, keyword, protocol:
        schema = LoadedFunction(function).manifest()["inputs_schema"]
        assert schema["properties"] == {"topic": {"type": "string"}}
        assert schema["required"] == ["topic"]
        attempt(function, topic="tides", steps="no input")
        with pytest.raises(InputsRefused):
            attempt(function)


def test_a_parameter_of_this_name_with_a_default_or_an_annotation_is_an_input() -> None:
    def number(steps: int) -> int:
        return steps

    def anything(steps: Any) -> Any:
        return steps

    def default(steps=3):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        return steps

    for function in number, anything, default:
        assert "steps" in LoadedFunction(function).manifest()["inputs_schema"]["properties"]
        assert result(attempt(function, steps=5)) == 5


def test_what_else_a_function_takes_does_not_hide_its_steps() -> None:
    def function(steps: Offered, **more: Any) -> Any:
        return [steps.run("step", lambda: 1), more]

    assert result(attempt(function, steps="input", other=2)) == [1, {"other": 2}]

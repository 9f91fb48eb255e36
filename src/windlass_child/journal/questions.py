"""Asks persons. A question ends the attempt, and the next one goes on with the answer, or the process waits for it.

The attempt ends only when no other step runs, because the work of a running step would be lost.
"""

# See docs/decisions/journal.md#a-question-ends-the-attempt
# See docs/decisions/journal.md#a-question-waits-for-the-steps-beside-it

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from windlass_child.journal.step_context import question_keys
from windlass_child.process.error_text import ProjectFault

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from windlass_child.journal.journal import Journal
    from windlass_child.protocol.messages import Answered

T = TypeVar("T")
MOMENT = 0.05
"""Seconds between two looks for an answer."""


RESULT = "#result."
"""The beginning of the names of questions about the result of a task. Other kinds have a number alone."""


class Paused(ProjectFault):
    """Ends an attempt whose question was sent. Nothing is reported after it."""


@dataclass(frozen=True, slots=True)
class Question:
    """`step` is the step that asks (step_context). `key` is that of the journal entry. `choices` are as in Asked.

    `task` is the name of the task that asks.

    `kept` are values that the next attempt needs beside the text and the draft. `position` is that of the task record,
    None for the record of the step around the question.
    """

    step: str
    key: str
    text: str
    draft: str = ""
    task: str | None = None
    method: str | None = None
    choices: tuple[str, ...] = ()
    kept: Any = None
    position: int | None = None

    @property
    def record(self) -> dict[str, Any]:
        return {"text": self.text, "draft": self.draft, "kept": self.kept, "position": self.position}


@dataclass(frozen=True, slots=True)
class Earlier:
    """A question of an earlier attempt, or one that was answered in this one. `answer` is None if nobody answered."""

    draft: str
    kept: Any
    answer: Answered | None
    position: int | None = None


class Asks(Protocol):
    """Sends questions to the server, and has the answers: the report of the run."""

    journal: Journal

    def ask(self, question: Question, *, waits: bool) -> int: ...

    def keep_question(self, question: Question) -> None: ...

    def answered(self, question: Question, answer: Answered) -> None: ...

    def stopping_or(self, abort: Callable[[ProjectFault], NoReturn]) -> None: ...


class Questions:
    """The questions of a run. Safe from any thread.

    `abort` ends the run with a fault, in the way that the framework passes on. `tasks` are the steps of crew tasks by
    the id of the task. `keeps` are the steps whose work before the question is in the journal.
    """

    def __init__(self, report: Asks) -> None:
        self.abort: Callable[[ProjectFault], NoReturn] = abort
        self.tasks: dict[str, str] = {}
        self.keeps: set[str] = set()
        self._report = report
        self._lock = threading.RLock()
        self._running: dict[str, int | None] = {}
        self._asking: list[str] = []
        self._turn: str | None = None
        self._paused = False
        self._closed = False
        self._numbers: Counter[str] = Counter()
        self._dialogs: dict[str, Dialog] = {}

    @contextlib.contextmanager
    def running(self, step: str, position: int | None = None) -> Iterator[None]:
        """Marks a step as running inside the `with` block. `position` is that of its task record.

        Does not begin a step after the last question of the attempt: ends the run.
        """
        with self._lock:
            self._refuse_if_over()
            self._running[step] = position
        try:
            yield
        finally:
            with self._lock:
                self._running.pop(step, None)
                if self._turn == step:
                    self._turn = None  # code of the step has left a question behind, as Flow.ask(timeout=...) does

    def close(self) -> None:
        """Ends the questions with the run. A thread that its code has left behind can't ask after that."""
        with self._lock:
            self._closed = True

    def _refuse_if_over(self) -> None:
        if self._closed:
            raise Paused("the run is over")
        if self._paused:
            self.abort(Paused("the run is paused"))

    def dialog(self, step: str) -> Dialog:
        """Returns the questions about the result of a task, in all attempts."""
        with self._lock:
            if step not in self._dialogs:
                self._dialogs[step] = Dialog(step, self._report)
            return self._dialogs[step]

    def numbered(self, step: str, kind: str) -> str:
        """Returns the key for the next question of this kind in a step. It is the same in each attempt."""
        place = f"{question_keys(step)}#{kind}"
        with self._lock:
            self._numbers[place] += 1
            return f"{place}.{self._numbers[place]}"

    def earlier(self, question: Question) -> Answered | None:
        """Returns the answer that an earlier attempt got to the same question about the same draft, or None."""
        entry = self._report.journal.take(question.key)
        if entry is None or not isinstance(entry.value, dict):
            return None
        same = (entry.value.get("text"), entry.value.get("draft")) == (question.text, question.draft)
        return self._report.journal.answer(entry.number) if same else None

    def pause(self, question: Question) -> Generator[None, None, NoReturn]:
        """Waits until no other step runs. Sends the question then, as the last message of the attempt, and ends it."""
        if not self._begin_to_pause(question):
            while not self._may_pause(question):
                yield
                self._report.stopping_or(self.abort)
        if not self._closed:
            self.abort(Paused("the run is paused"))
        raise Paused("the run is over")

    def _begin_to_pause(self, question: Question) -> bool:
        """Returns whether it could pause at once. Otherwise the question is in the journal when it returns."""
        with self._lock:
            self._asking.append(question.step)
            if self._may_pause(question):
                return True
        self._report.keep_question(self._placed(question))
        return False

    def _may_pause(self, question: Question) -> bool:
        """Sends the question, unless another step runs. Another question may have been sent meanwhile."""
        with self._lock:
            if self._paused or self._closed:
                return True
            if any(not self._asks(step) for step in self._running):
                return False
            self._send(question, waits=False)
            self._paused = True
            return True

    def _send(self, question: Question, *, waits: bool) -> int:
        try:
            return self._report.ask(self._placed(question), waits=waits)
        except ProjectFault as fault:
            self.abort(fault)

    def _asks(self, step: str) -> bool:
        """Returns whether a running step only waits for a question that wants to pause: its own, or one within it."""
        return any(asking == step or asking.startswith(f"{step}/") for asking in self._asking)

    def wait(self, question: Question) -> Generator[None, None, Answered]:
        """Asks, and waits for the answer. Questions of different steps are asked one after the other."""
        if (given := self.earlier(question)) is not None:
            return given
        while not self._takes_turn(question.step):
            yield
            self._report.stopping_or(self.abort)
        self._refuse_if_over()
        number = self._send(question, waits=True)
        while (given := self._report.journal.answer(number)) is None:
            yield
            self._report.stopping_or(self.abort)
        with self._lock:
            if self._turn == question.step:
                self._turn = None
        self._report.answered(question, given)
        return given

    def _takes_turn(self, step: str) -> bool:
        with self._lock:
            if self._turn in (None, step):  # a step that asks again has left its question before
                self._turn = step
                return True
            return False

    def _placed(self, question: Question) -> Question:
        if question.position is not None:
            return question
        with self._lock:
            around = [step for step in self._running if question.step == step or question.step.startswith(f"{step}/")]
            positions = [self._running[step] for step in sorted(around, key=len, reverse=True)]
        position = next((one for one in positions if one is not None), None)
        return replace(question, position=position)


class Dialog:
    """The questions about the result of one task: after each answer with changes the task is done again.

    A guardrail may refuse a result that a person has approved. The task is done again then, and a new part begins.
    """

    def __init__(self, step: str, report: Asks) -> None:
        self._step = step
        self._report = report
        self._part = 1
        self._kept = report.journal.take_all(f"{question_keys(step)}{RESULT}")

    def last(self) -> Earlier | None:
        """Returns the last question of the current part."""
        entries = [entry for name, entry in self._kept.items() if name.startswith(f"{self._part}.")]
        if not entries or not isinstance(entries[-1].value, dict):
            return None
        value, answer = entries[-1].value, self._report.journal.answer(entries[-1].number)
        return Earlier(value["draft"], value["kept"], answer, value["position"])

    def position(self) -> int | None:
        """Returns the position of the task record that earlier attempts had for the task."""
        positions = [entry.value["position"] for entry in self._kept.values() if isinstance(entry.value, dict)]
        return positions[-1] if positions else None

    def next_key(self) -> str:
        """Returns the key of the next question. One that was not answered is asked again by the same key."""
        asked = [name for name in self._kept if name.startswith(f"{self._part}.")]
        last = self.last()
        number = len(asked) if last is not None and last.answer is None else len(asked) + 1
        return f"{question_keys(self._step)}{RESULT}{self._part}.{number}"

    def approved(self) -> None:
        self._part += 1


def abort(fault: ProjectFault) -> NoReturn:
    raise fault


def driven(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        time.sleep(MOMENT)


async def driven_meanwhile(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(MOMENT)

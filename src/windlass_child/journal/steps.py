"""Steps of a function, for frameworks without tasks. Each step is reported as a task and kept in the journal.

A function receives a `Steps` object in its parameter `steps` (docs/concepts/steps.md), so projects need not import
Windlass.
"""

# See docs/decisions/journal.md#a-step-is-identified-by-its-function-and-its-arguments

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import threading
import time
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin
from urllib.parse import quote

from windlass_child.journal.fingerprint import Identity, Kind, task_key
from windlass_child.journal.step_context import inheriting, step_here, within
from windlass_child.journal.value_codec import decoded, encoded
from windlass_child.process.error_text import ProjectFault, text_of
from windlass_child.protocol.messages import TaskEnded, TaskStarted
from windlass_child.results import text_of_output

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from windlass_child.process.report import Report
    from windlass_child.protocol.fields import KnownTask

PARAMETER = "steps"
STEP = "step/"
FIRST = 1
"""The position of the first step's task record. Position 0 is that of the function."""
ALIKE = "another attempt could not distinguish it from other steps: pass its data as text, numbers or models"
UNKNOWN = "it was begun in a thread that was there before the run: start threads in the code that is run"

T = TypeVar("T")


def wanted_by(parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]) -> bool:
    """Returns whether a function's parameter `steps` is for a `Steps` object.

    With a default or an annotation, `steps` is an input like any other. The exception is an annotation with a Protocol,
    because no JSON value can be one.
    """
    one = parameters.get(PARAMETER)
    if one is None or one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
        return False
    if one.annotation is one.empty:
        return one.default is one.empty
    hint = hints.get(PARAMETER)
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return any(getattr(kind, "_is_protocol", False) for kind in kinds)


@dataclass(frozen=True, slots=True)
class Step:
    """One of the steps with its name.

    `kind` contains the place where it runs and its identity. `number` distinguishes it from steps of the same kind.
    `key` is None if the place is not known.
    """

    name: str
    position: int
    kind: str
    number: int
    key: str | None

    @property
    def within(self) -> str:
        return f"{self.kind}/{self.number}"

    @property
    def called(self) -> str:
        return f"the step {self.name}"


class Steps:
    """Runs steps. It is thread-safe. A name has one task record, which shows the last run."""

    same_in_every_attempt = PARAMETER

    def __init__(self, function: str, report: Report) -> None:
        self._function = function
        self._report = report
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._kinds: dict[str, Kind] = {}
        self._positions = dict(recorded_positions(report.journal.values()))
        self._restored: list[str] = []
        self._refused: set[str] = set()

    def run(self, name: str, work: Callable[..., T], /, *arguments: Any, **named: Any) -> T:
        """Returns `work(*arguments, **named)`, or its journaled result if an earlier attempt has finished the step."""
        step = self._begun(name, work, arguments, named)
        if given := self._again(step):
            found: T = given[0]
            return found
        with self._report.questions.running(step.within, step.position):
            with self._followed(step) as began:
                value = work(*arguments, **named)
                refuse_to_wait(step, value)
            if entry := self._ended(step, value, began):
                self._report.finished(*entry)
                self._report.committed()
        return value

    async def arun(self, name: str, work: Callable[..., Awaitable[T] | T], /, *arguments: Any, **named: Any) -> T:
        """Does the same as `run`, and awaits the result of `work` if it is awaitable."""
        step = self._begun(name, work, arguments, named)
        if given := self._again(step):
            found: T = given[0]
            return found
        with self._report.questions.running(step.within, step.position):
            with self._followed(step) as began:
                made: Any = work(*arguments, **named)
                value: T = await made if inspect.isawaitable(made) else made
            if entry := self._ended(step, value, began):
                await self._report.finished_meanwhile(*entry)
        return value

    def step(self, named: Any, /) -> Any:
        """Decorates a function so that each call is a step: `@steps.step`, or `@steps.step("another name")`."""
        if isinstance(named, str):
            return functools.partial(self._stepped, named)
        return self._stepped(getattr(named, "__name__", type(named).__name__), named)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Makes threads inherit the step that starts them, inside the `with` block."""
        with inheriting():
            yield
        self._report_restored()

    def _stepped(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(work):

            @functools.wraps(work)
            async def stepped_meanwhile(*arguments: Any, **named: Any) -> Any:
                return await self.arun(name, work, *arguments, **named)

            return stepped_meanwhile

        @functools.wraps(work)
        def stepped(*arguments: Any, **named: Any) -> Any:
            return self.run(name, work, *arguments, **named)

        return stepped

    def _begun(self, name: str, work: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Step:
        refuse_non_function(name, work)
        self._refuse_another_process(name)
        self._report.stopping.check()
        where, identity = step_here(), Identity.of_call(work, arguments, named)
        kind = "/".join(filter(None, [where, quote(name, safe=""), identity.digest]))
        with self._lock:
            number = self._numbered(name, kind, identity)
            position = self._positions.get(name) or first_free(set(self._positions.values()), FIRST)
            self._positions[name] = position
        return Step(name, position, kind, number, None if where is None else f"{STEP}{kind}/{number}")

    def _numbered(self, name: str, kind: str, identity: Identity) -> int:
        if kind not in self._kinds:
            self._kinds[kind] = Kind(alike=self._report.journal.take(marker(kind)) is not None)
        steps = self._kinds[kind]
        was_alike = steps.alike
        number = steps.begin(identity)
        if steps.alike:
            self._report.journal.take_all(f"{STEP}{kind}/")
            self._report.journal.drop_within(kind)
            if not was_alike:
                self._report.finished(marker(kind), {}, f"the step {name}")
        return number

    def _again(self, step: Step) -> list[Any]:
        """Returns a list with the journaled result alone, or an empty list if there is none or it does not fit."""
        entry = self._report.journal.take(step.key) if step.key else None
        if entry is None:
            return []
        try:
            value = decoded(entry.value["value"])
        except Exception as error:  # noqa: BLE001 - decoding runs code of the project
            self._report.warn("journal_unfit", f"{step.called} is run again: {text_of(error)}")
            return []
        self._report.journal.take_all(f"{step.key}/")  # neither steps nor crews in this step are run again
        self._report.journal.drop_within(step.within)
        with self._lock:
            self._restored.append(step.name)
        return [value]

    @contextlib.contextmanager
    def _followed(self, step: Step) -> Iterator[float]:
        """Reports the run of a step inside the `with` block, and yields the time of its start.

        A step that fails frees its number, and the next step of its kind takes the number.
        """
        self._report_restored()
        began = time.time()
        self._report.send(TaskStarted(step.position, **self._known(step), at=began))
        try:
            with within(step.within):
                yield began
        except BaseException:
            with self._lock:
                self._kinds[step.kind].fail(step.number)
            self._report.send(TaskEnded(step.position, "failed", time.time()))
            raise

    def _known(self, step: Step) -> KnownTask:
        return {"key": task_key(f"{self._function}.{step.name}"), "name": step.name, "agent": None}

    def _ended(self, step: Step, value: Any, began: float) -> tuple[str, dict[str, Any], str, int] | None:
        """Reports the end of a step. Returns the arguments of `Report.finished`, or None if it can't be journaled."""
        at = time.time()
        self._report.send(TaskEnded(step.position, "completed", at, text_of_output(value), None, at - began))
        try:
            held = encoded(value)
        except Exception as error:  # noqa: BLE001 - runs properties of the project's classes
            self._refuse(step, text_of(error))
            return None
        if step.key is None or self._kinds[step.kind].alike:
            self._refuse(step, ALIKE if step.key else UNKNOWN)
            return None
        return step.key, {"step": step.name, "position": step.position, "value": held}, step.called, step.position

    def _refuse_another_process(self, name: str) -> None:
        """Raises ProjectFault in a forked process, because the server receives no messages from it."""
        if os.getpid() != self._process:
            raise ProjectFault(
                f"the step {name} was begun in another process than the run's",
                "Begin it in the process that the function is run in, and start the other one within it.",
            )

    def _refuse(self, step: Step, why: str) -> None:
        """Reports only once for each name that it is not journaled. A step may run a thousand times."""
        if step.name not in self._refused:
            self._refused.add(step.name)
            self._report.not_journaled(step.called, why)

    def _report_restored(self) -> None:
        with self._lock:
            names, self._restored = self._restored, []
        if names:
            self._report.event("journal_restored", {"tasks": names, "methods": []})


def recorded_positions(entries: list[Any]) -> Iterator[tuple[str, int]]:
    """Yields (name, position of the task record) of the steps of earlier attempts."""
    for value in entries:
        if isinstance(value, dict) and "step" in value:
            yield value["step"], value["position"]


def first_free(taken: set[int], first: int) -> int:
    return next(number for number in range(first, first + len(taken) + 1) if number not in taken)


def marker(kind: str) -> str:
    """Returns the key of the entry that marks the steps of a kind as alike: none of them is taken from the journal."""
    return f"alike/{kind}"


def refuse_non_function(name: Any, work: Any) -> None:
    if not isinstance(name, str) or not name:
        raise ProjectFault(
            f"a step was given a {type(name).__name__} for its name",
            'Name it by a text that is not empty: steps.run("research", function, argument).',
        )
    if not callable(work):
        close(work)
        raise ProjectFault(
            f"the step {name} was given a {type(work).__name__} and no function",
            f'Give the function, and its arguments behind it: steps.run("{name}", function, argument).',
        )


def refuse_to_wait(step: Step, value: Any) -> None:
    if inspect.isawaitable(value):
        close(value)
        raise ProjectFault(
            f"{step.called} gave something to await", f'Write: await steps.arun("{step.name}", function, argument).'
        )


def close(value: Any) -> None:
    """Closes a coroutine that will not be awaited, which avoids Python's warning about it."""
    if inspect.iscoroutine(value):
        value.close()

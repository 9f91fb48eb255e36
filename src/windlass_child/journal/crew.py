"""Resumes crews: a task that is in the journal returns its journaled output and is not run.

This applies to every crew of a run, in any code that kicks one off. crewai's own checkpoints are not used. They skip
only the tasks before the first unfinished one, and they build the crew again without the project's code.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crewai import Task
from crewai.hooks import InterceptionPoint, register_hook, unregister_hook
from crewai.tasks.conditional_task import ConditionalTask

from windlass_child.crewai.tasks import described
from windlass_child.journal import tasks
from windlass_child.journal.fingerprint import Identity
from windlass_child.journal.step_context import inheriting, replaced, step_here, task_keys, within
from windlass_child.process.error_text import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass_child.crewai.tasks import TaskFollower
    from windlass_child.process.report import Report

JournalCommitted = tuple[str, dict[str, Any], str, int | None, bool]
"""The arguments of `Report.finished`."""

UNKNOWN = "it was kicked off in a thread that was there before the run: start threads in the code that is run"


@dataclass(slots=True)
class Step:
    """A task of a crew that was kicked off.

    `own` is true for a task of the project's own crew, whose output is stored in its task record. `output` and
    `skipped` are the result of an earlier attempt.
    """

    key: str
    name: str
    own: bool
    output: Any = None
    skipped: bool = False

    @property
    def called(self) -> str:
        return f"the task {self.name}"

    @property
    def within(self) -> str:
        """The step of crews that this task kicks off: in its callbacks, guardrails, tools and condition."""
        return self.key.removeprefix("task/")


class CrewJournal:
    def __init__(self, report: Report, crew: Any = None, follower: TaskFollower | None = None) -> None:
        """Takes the project's own crew and the follower that reports its tasks. Other kinds of project have neither."""
        self._report = report
        self._crew = crew
        self._follower = follower
        self._begun = False
        self._steps: dict[str, Step] = {}
        self._kickoffs: Counter[str] = Counter()
        self._lock = threading.Lock()
        if follower is not None:
            follower.pass_over(value.get("position") for value in report.journal.values())

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        register_hook(InterceptionPoint.EXECUTION_START, self._begin)
        register_hook(InterceptionPoint.EXECUTION_END, self._end)
        try:
            with (
                inheriting(),
                replaced(Task, "_execute_core", self._running),
                replaced(Task, "_aexecute_core", self._running_async),
                replaced(ConditionalTask, "should_execute", self._deciding),
            ):
                yield
        finally:
            unregister_hook(InterceptionPoint.EXECUTION_START, self._begin)
            unregister_hook(InterceptionPoint.EXECUTION_END, self._end)

    def _begin(self, context: Any) -> None:
        crew = context.crew
        if crew is None:
            return
        own = self._is_own(crew)
        where = step_here()
        if where is None:
            self._report.not_journaled(f"the crew {crew.name}", UNKNOWN)
            return
        kickoff = self._named(where, crew, context.payload)
        steps = [Step(f"{kickoff}{at}", name_of(task), own) for at, task in enumerate(crew.tasks)]
        for task, step in zip(crew.tasks, steps, strict=True):
            self._restore(task, step)
            self._steps[str(task.id)] = step
        if names := [step.name for step in steps if step.output is not None or step.skipped]:
            self._report.event("journal_restored", {"tasks": names, "methods": []})

    def _end(self, context: Any) -> None:
        """Ends the steps of a crew, also after a failure."""
        self._report.committed()
        for task in context.crew.tasks if context.crew is not None else ():
            self._steps.pop(str(task.id), None)

    def _is_own(self, crew: Any) -> bool:
        if crew is not self._crew:
            return False
        if self._begun and self._follower is not None:
            self._follower.forget(crew.tasks)  # the task records hold the outputs of the first kickoff
        self._begun = True
        return True

    def _named(self, where: str, crew: Any, inputs: Any) -> str:
        """Returns the prefix of the keys of the crew's tasks. It is the same in every attempt.

        It contains the inputs, because crews that run at the same time may start in another order in each attempt.
        """
        kind = f"{task_keys(where)}{crew.key}/{Identity.of(inputs).digest}/"
        with self._lock:
            self._kickoffs[kind] += 1
            return f"{kind}{self._kickoffs[kind]}/"

    def _restore(self, task: Any, step: Step) -> None:
        """Restores a task from its journal entry. An entry that does not fit is ignored, with a warning."""
        entry = self._report.journal.take(step.key)
        if entry is None:
            return
        try:
            step.skipped = entry.value == entry.value | tasks.SKIPPED
            step.output = None if step.skipped else tasks.restored(task, entry)
        except Exception as error:  # noqa: BLE001 - runs code of the project's classes
            self._report.warn("journal_unfit", f"{step.called} is run again: {text_of(error)}")
        else:
            self._report.journal.take_all(task_keys(step.within))  # crews in this step are not kicked off again
        self._place(task, step, entry.value.get("position"))

    def _place(self, task: Any, step: Step, position: int | None) -> None:
        if self._follower is not None and position is not None:
            over = step.skipped or step.output is not None
            self._follower.restored(task, position, over=over)

    def _running(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def run_once(task: Any, agent: Any, *arguments: Any) -> Any:
            step = self._steps.get(str(task.id))
            if step is None:
                return run(task, agent, *arguments)
            if step.output is not None:
                return again(task, agent, step.output)
            self._report.committed()  # waits for earlier steps only now, so that crewai's own work overlaps the commit
            with within(step.within):
                output = run(task, agent, *arguments)
            if entry := self._entry(task, step, output):
                self._report.finished(*entry)
            return output

        return run_once

    def _running_async(self, run: Callable[..., Any]) -> Callable[..., Any]:
        async def run_once(task: Any, agent: Any, *arguments: Any) -> Any:
            step = self._steps.get(str(task.id))
            if step is None:
                return await run(task, agent, *arguments)
            if step.output is not None:
                return again(task, agent, step.output)
            with within(step.within):
                output = await run(task, agent, *arguments)
            if entry := self._entry(task, step, output):
                await self._report.finished_meanwhile(*entry)
            return output

        return run_once

    def _deciding(self, decide: Callable[..., bool]) -> Callable[..., bool]:
        def decide_once(task: Any, context: Any) -> bool:
            step = self._steps.get(str(task.id))
            if step is None:
                return decide(task, context)
            if step.skipped or step.output is not None:
                return not step.skipped
            self._report.committed()
            with within(step.within):
                wanted = decide(task, context)
            if not wanted:
                self._report.finished(*self._placed(task, step, tasks.SKIPPED))
            return wanted

        return decide_once

    def _entry(self, task: Any, step: Step, output: Any) -> JournalCommitted | None:
        try:
            value = tasks.kept(task, output, without_raw=step.own)
        except Exception as error:  # noqa: BLE001 - runs code of the project's objects
            self._report.not_journaled(step.called, text_of(error))
            return None
        return self._placed(task, step, value)

    def _placed(self, task: Any, step: Step, value: dict[str, Any]) -> JournalCommitted:
        position = None if self._follower is None else self._follower.position(task)
        return step.key, value | {"position": position}, step.called, position, "digest" in value


def again(task: Any, agent: Any, output: Any) -> Any:
    """Does crewai's work at the end of a task, without the callbacks. They ran in the attempt that finished it."""
    task.agent = agent or task.agent
    task.output = tasks.named(task, output)
    tasks.write_file(task, output)
    return output


def name_of(task: Any) -> str:
    known = described(task)
    return known["name"] or known["key"]

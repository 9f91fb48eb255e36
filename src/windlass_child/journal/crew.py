"""Resumes crews: a task that is in the journal returns its journaled output and is not run.

This applies to every crew of a run, in any code that kicks one off. crewai's own checkpoints are not used. They skip
only the tasks before the first unfinished one, and they build the crew again without the project's code.
"""

# See docs/decisions/journal.md#a-nested-crew-is-identified-by-its-inputs-too
# See docs/decisions/journal.md#a-second-kickoff-of-a-crew-has-its-own-task-records

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crewai import Crew, Task

from windlass_child.crewai.capabilities import found
from windlass_child.crewai.guard import hooked, hooks
from windlass_child.crewai.tasks import described
from windlass_child.journal import tasks
from windlass_child.journal.fingerprint import Identity
from windlass_child.journal.step_context import inheriting, step_here, task_keys, within
from windlass_child.process.error_text import text_of
from windlass_child.replacements import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass_child.crewai.tasks import TaskFollower
    from windlass_child.process.report import Report

Entry = tuple[str, dict[str, Any], str, int | None, bool]
"""The positional arguments of `Report.finished`."""

SHOULD_EXECUTE = "crewai.tasks.conditional_task:ConditionalTask.should_execute"
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
    running: bool = False

    @property
    def called(self) -> str:
        return f"the task {self.name}"

    @property
    def within(self) -> str:
        """The step of crews that this task kicks off: in its callbacks, guardrails, tools and condition."""
        return self.key.removeprefix("task/")

    @contextlib.contextmanager
    def being_run(self) -> Iterator[None]:
        self.running = True
        try:
            yield
        finally:
            self.running = False


class CrewJournal:
    def __init__(self, report: Report, crew: Any = None, follower: TaskFollower | None = None) -> None:
        """Takes the project's own crew and the follower that reports its tasks. Other kinds of project have neither."""
        self._report = report
        self._crew = crew
        self._follower = follower
        self._begun = False
        self._steps: dict[str, Step] = {}
        self._kickoffs: Counter[str] = Counter()
        self._inputs: dict[str, Any] = {}
        self._lock = threading.Lock()
        if follower is not None:
            follower.pass_over(value.get("position") for value in report.journal.values())

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        with (
            self._following_kickoffs(),
            inheriting(),
            replaced("crewai:Task._execute_core", self._running),
            replaced("crewai:Task._aexecute_core", self._running_async)
            if hasattr(Task, "_aexecute_core")
            else nothing(),
            replaced(SHOULD_EXECUTE, self._deciding),
        ):
            yield

    @contextlib.contextmanager
    def _following_kickoffs(self) -> Iterator[None]:
        """Calls `_begin` and `_end` at the begin and the end of each crew."""
        if not found()["hooks"]:
            with self._replacing_kickoffs():
                yield
            return
        points = hooks.InterceptionPoint
        with hooked({points.EXECUTION_START: self._begin_of_hook, points.EXECUTION_END: self._end_of_hook}):
            yield

    @contextlib.contextmanager
    def _replacing_kickoffs(self) -> Iterator[None]:
        """Does without hooks: notes the inputs of a kickoff, and surrounds the run of its tasks."""
        with contextlib.ExitStack() as stack:
            for name in ("kickoff", "akickoff"):
                if hasattr(Crew, name):
                    stack.enter_context(replaced(f"crewai:Crew.{name}", self._noting_inputs))
            for name, surround in {"_execute_tasks": self._around, "_aexecute_tasks": self._around_async}.items():
                if hasattr(Crew, name):
                    stack.enter_context(replaced(f"crewai:Crew.{name}", surround))
            yield

    def _noting_inputs(self, kickoff: Callable[..., Any]) -> Callable[..., Any]:
        def note_and_kick_off(crew: Any, inputs: Any = None, *arguments: Any, **named: Any) -> Any:
            self._inputs[str(crew.id)] = dict(inputs) if isinstance(inputs, dict) else inputs
            return kickoff(crew, inputs, *arguments, **named)

        return note_and_kick_off

    def _around(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def run_between(crew: Any, *arguments: Any, **named: Any) -> Any:
            self._begin(crew, self._inputs.pop(str(crew.id), None))
            try:
                return run(crew, *arguments, **named)
            finally:
                self._end(crew)

        return run_between

    def _around_async(self, run: Callable[..., Any]) -> Callable[..., Any]:
        async def run_between(crew: Any, *arguments: Any, **named: Any) -> Any:
            self._begin(crew, self._inputs.pop(str(crew.id), None))
            try:
                return await run(crew, *arguments, **named)
            finally:
                self._end(crew)

        return run_between

    def _begin_of_hook(self, context: Any) -> None:
        if context.crew is not None:
            self._begin(context.crew, context.payload)

    def _end_of_hook(self, context: Any) -> None:
        self._end(context.crew)

    def _begin(self, crew: Any, inputs: Any) -> None:
        own = self._is_own(crew)
        where = step_here()
        if where is None:
            self._report.not_journaled(f"the crew {crew.name}", UNKNOWN)
            return
        kickoff = self._named(where, crew, inputs)
        steps = [Step(f"{kickoff}{at}", name_of(task), own) for at, task in enumerate(crew.tasks)]
        for task, step in zip(crew.tasks, steps, strict=True):
            self._restore(task, step)
            self._steps[str(task.id)] = step
            self._report.questions.tasks[str(task.id)] = step.within
        if names := [step.name for step in steps if step.output is not None or step.skipped]:
            self._report.event("journal_restored", {"tasks": names, "methods": []})

    def _end(self, crew: Any) -> None:
        """Ends the steps of a crew, also after a failure."""
        self._report.committed()
        for task in crew.tasks if crew is not None else ():
            self._steps.pop(str(task.id), None)
            self._report.questions.tasks.pop(str(task.id), None)

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
            if self._report.journal.asked_before:
                self._place(task, step, self._report.questions.dialog(step.within).position())
            return
        try:
            step.skipped = entry.value == entry.value | tasks.SKIPPED
            step.output = None if step.skipped else tasks.restored(task, entry)
        except Exception as error:  # noqa: BLE001 - runs code of the project's classes
            self._report.warn("journal_unfit", f"{step.called} is run again: {text_of(error)}")
        else:
            self._report.journal.drop_within(step.within)  # crews in this step are not kicked off again
        self._place(task, step, entry.value.get("position"))

    def _place(self, task: Any, step: Step, position: int | None) -> None:
        if self._follower is not None and position is not None:
            over = step.skipped or step.output is not None
            self._follower.restored(task, position, over=over)

    def _running(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def run_once(task: Any, agent: Any, *arguments: Any) -> Any:
            step = self._steps.get(str(task.id))
            if step is None or step.running:  # some releases run a task anew within itself, for its guardrail
                return run(task, agent, *arguments)
            if step.output is not None:
                return again(task, agent, step.output)
            self._report.committed()  # waits for earlier steps only now, so that crewai's own work overlaps the commit
            with self._report.questions.running(step.within):
                with within(step.within), step.being_run():
                    output = run(task, agent, *arguments)
                if entry := self._entry(task, step, output):
                    self._report.finished(*entry)
            return output

        return run_once

    def _running_async(self, run: Callable[..., Any]) -> Callable[..., Any]:
        async def run_once(task: Any, agent: Any, *arguments: Any) -> Any:
            step = self._steps.get(str(task.id))
            if step is None or step.running:
                return await run(task, agent, *arguments)
            if step.output is not None:
                return again(task, agent, step.output)
            with self._report.questions.running(step.within):
                with within(step.within), step.being_run():
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

    def _entry(self, task: Any, step: Step, output: Any) -> Entry | None:
        try:
            # an output with a secret is masked in its task record, and so can't be restored from there
            without_raw = step.own and not self._report.has_secret(output.raw)
            value = tasks.kept(task, output, without_raw=without_raw)
        except Exception as error:  # noqa: BLE001 - runs code of the project's objects
            self._report.not_journaled(step.called, text_of(error))
            return None
        return self._placed(task, step, value)

    def _placed(self, task: Any, step: Step, value: dict[str, Any]) -> Entry:
        position = None if self._follower is None else self._follower.position(task)
        return step.key, value | {"position": position}, step.called, position, "digest" in value


nothing = contextlib.nullcontext


def again(task: Any, agent: Any, output: Any) -> Any:
    """Does crewai's work at the end of a task, without the callbacks. They ran in the attempt that finished it."""
    task.agent = agent or task.agent
    task.output = tasks.named(task, output)
    tasks.write_file(task, output)
    return output


def name_of(task: Any) -> str:
    known = described(task)
    return known["name"] or known["key"]

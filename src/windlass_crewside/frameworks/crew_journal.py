"""Has crews go on where an earlier attempt came to: a task that is in the journal gives its output and is not run.

Every crew of a run is looked after, wherever it is kicked off. crewai's own way to go on, its checkpoints, skips only
what lies before the first unfinished task, and makes the crew anew, without the project's code.
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

from windlass_crewside.faults import text_of
from windlass_crewside.frameworks import journaled_tasks
from windlass_crewside.frameworks.crew_tasks import described
from windlass_crewside.frameworks.identity import Identity
from windlass_crewside.frameworks.replacing import replaced
from windlass_crewside.frameworks.within import inheriting, step_here, task_keys, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass_crewside.frameworks.crew_tasks import TaskFollower
    from windlass_crewside.report import Report

Written = tuple[str, dict[str, Any], str, int | None, bool]
"""What `Report.finished` is to write."""

UNKNOWN = "it was kicked off in a thread that was there before the run: start threads in the code that is run"


@dataclass(slots=True)
class Step:
    """A task of a crew that was kicked off. `own` says that it is of the crew that the project is, so that its output
    is kept in its task record; `output` and `skipped` are what an earlier attempt left of it.
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
        """What crews are within that are kicked off by it: its callbacks, guardrails, tools and condition."""
        return self.key.removeprefix("task/")


class CrewJournal:
    def __init__(self, report: Report, crew: Any = None, follower: TaskFollower | None = None) -> None:
        """`crew` is the one that the project is, `follower` writes task records; other kinds of project have none."""
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
        """Whether it has failed or not."""
        self._report.committed()
        for task in context.crew.tasks if context.crew is not None else ():
            self._steps.pop(str(task.id), None)

    def _is_own(self, crew: Any) -> bool:
        if crew is not self._crew:
            return False
        if self._begun and self._follower is not None:
            self._follower.forget(crew.tasks)  # the output of its first kickoff is in the task records of that
        self._begun = True
        return True

    def _named(self, where: str, crew: Any, inputs: Any) -> str:
        """What the keys of its tasks begin with, the same in every attempt.

        With the inputs: of crews that run side by side, the first to start may be another one in each attempt.
        """
        kind = f"{task_keys(where)}{crew.key}/{Identity.of(inputs).digest}/"
        with self._lock:
            self._kickoffs[kind] += 1
            return f"{kind}{self._kickoffs[kind]}/"

    def _restore(self, task: Any, step: Step) -> None:
        """What does not fit is as if it was not there."""
        entry = self._report.journal.take(step.key)
        if entry is None:
            return
        try:
            step.skipped = entry.value == entry.value | journaled_tasks.SKIPPED
            step.output = None if step.skipped else journaled_tasks.restored(task, entry)
        except Exception as error:  # noqa: BLE001 - classes of the project are asked
            self._report.warn("journal_unfit", f"{step.called} is run again: {text_of(error)}")
        else:
            self._report.journal.take_all(task_keys(step.within))  # crews within it are not kicked off again
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
            self._report.committed()  # what was finished before; crewai has done its own part meanwhile
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
                self._report.finished(*self._placed(task, step, journaled_tasks.SKIPPED))
            return wanted

        return decide_once

    def _entry(self, task: Any, step: Step, output: Any) -> Written | None:
        try:
            value = journaled_tasks.kept(task, output, without_raw=step.own)
        except Exception as error:  # noqa: BLE001 - objects of the project are asked
            self._report.not_journaled(step.called, text_of(error))
            return None
        return self._placed(task, step, value)

    def _placed(self, task: Any, step: Step, value: dict[str, Any]) -> Written:
        position = None if self._follower is None else self._follower.position(task)
        return step.key, value | {"position": position}, step.called, position, "digest" in value


def again(task: Any, agent: Any, output: Any) -> Any:
    """What crewai does at the end of a task, but for the callbacks, which have run."""
    task.agent = agent or task.agent
    task.output = journaled_tasks.named(task, output)
    journaled_tasks.write_file(task, output)
    return output


def name_of(task: Any) -> str:
    known = described(task)
    return known["name"] or known["key"]

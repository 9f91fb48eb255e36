"""Ends a crew from within its process: after a request to stop, at a limit, and when a question pauses it.

Each case raises crewai's HookAborted, where there is one. It is the only exception that crewai neither retries nor
wraps in any mode.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NoReturn

from windlass_child.crewai.capabilities import found
from windlass_child.crewai.features import optional
from windlass_child.crewai.model_calls import Interception
from windlass_child.crewai.persons import Person, standing_for_persons
from windlass_child.crewai.tasks import described
from windlass_child.process.budget import Spending
from windlass_child.process.error_text import ProjectFault
from windlass_child.process.prompts import Prompt, texts_in
from windlass_child.protocol.messages import ModelCalled
from windlass_child.replacements import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from windlass_child.crewai.tasks import TaskFollower
    from windlass_child.process.report import Report
    from windlass_child.protocol.messages import Budget

hooks = optional("crewai.hooks")
dispatch = optional("crewai.hooks.dispatch")

HOOKED = {"execution_start", "execution_end", "pre_model_call", "pre_tool_call", "pre_step"}
"""The interception points at which this module or `journal.crew` registers one hook."""


class Aborted(Exception):  # noqa: N818 - describes a run
    """Ends a crew where crewai has no HookAborted. crewai does not retry a task after an error of LiteLLM."""

    def __init__(self, reason: str, source: str) -> None:
        super().__init__(reason)
        self.source = source


Aborted.__module__ = "litellm.windlass"  # crewai recognises the errors of LiteLLM by the beginning of this name


class Guard:
    """Guards one run. The first reason to end the run is the one that is reported. No model is called after it."""

    def __init__(self, budget: Budget, report: Report, follower: TaskFollower | None = None) -> None:
        """`follower` knows the task records of the tasks that call models."""
        self._spending = Spending(budget)
        self._follower = follower
        self._report = report
        self._fault: ProjectFault | None = None
        report.questions.abort = self.abort

    def count_tokens(self, tokens: int) -> None:
        self._spending.count_tokens(tokens)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Guards the run inside the `with` block.

        Raises the reason of its end, also if crewai or the crew's code caught or replaced that exception.
        """
        try:
            with self._intercepting(), standing_for_persons(Person(self._report, self._follower)):
                try:
                    yield
                finally:
                    self._report.questions.close()
        except Exception as error:
            if self._fault is not None:
                raise self._fault from error
            raise
        if self._fault is not None:
            raise self._fault

    @contextlib.contextmanager
    def _intercepting(self) -> Iterator[None]:
        if not found()["hooks"]:
            with Interception(self._before_step, self._before_model_call).watching():
                yield
            return
        points = hooks.InterceptionPoint
        registered = {
            points.PRE_MODEL_CALL: self._before_model_call,
            points.PRE_TOOL_CALL: self._before_step,
            points.PRE_STEP: self._before_step,
        }
        with hooked(registered), without_events_of_own_hooks():
            yield

    def _before_step(self, _: Any) -> None:
        if self._fault is not None:
            self.abort(self._fault)
        try:
            self._report.stopping.check()
        except ProjectFault as fault:
            self.abort(fault)

    def _before_model_call(self, context: Any) -> None:
        self._before_step(context)
        try:
            self._check_prompt(context)
            self._spending.begin_call()
        except ProjectFault as fault:
            self.abort(fault)
        self._report.send(ModelCalled())

    def _check_prompt(self, call: Any) -> None:
        """Warns of secrets in the messages of a model call. Raises SecretRefused if they are refused."""
        if not self._report.prompts:
            return
        task = getattr(call, "task", None)
        where = "a prompt" if task is None else f"a prompt of the task {described(task)['name'] or 'without a name'}"
        position = None if task is None or self._follower is None else self._follower.known_position(task)
        text = "\n".join(texts_in(call.messages))
        self._report.warn_all(self._report.prompts.check([Prompt(where, text, position)]))

    def abort(self, fault: ProjectFault) -> NoReturn:
        self._fault = self._fault or fault
        raise getattr(hooks, "HookAborted", Aborted)(reason=self._fault.message, source="windlass")


@contextlib.contextmanager
def without_events_of_own_hooks() -> Iterator[None]:
    """Prevents the event for each call of a hook, where the only hook is that of Windlass. Such an event costs as much
    as those of models and tasks, and is not about the crew.
    """
    if dispatch is None or not hasattr(dispatch, "_emit_telemetry"):
        yield
        return

    def making(emit: Callable[..., None]) -> Callable[..., None]:
        def emit_of_others(point: Any, outcome: str, hook_count: int, *more: Any) -> None:
            if hook_count > 1 or point.value not in HOOKED:
                emit(point, outcome, hook_count, *more)

        return emit_of_others

    with replaced("crewai.hooks.dispatch:_emit_telemetry", making):
        yield


@contextlib.contextmanager
def hooked(registered: Mapping[Any, Callable[[Any], None]]) -> Iterator[None]:
    """Registers a hook of crewai for each interception point, inside the `with` block."""
    for point, hook in registered.items():
        hooks.register_hook(point, hook)
    try:
        yield
    finally:
        for point, hook in registered.items():
            hooks.unregister_hook(point, hook)

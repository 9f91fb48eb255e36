"""Ends a crew from within: when it was asked to end, when it has used up what it may, and when it asks a person.

Each raises crewai's HookAborted, the one exception that passes its retries and wrappers, in all of its modes.
"""

from __future__ import annotations

import contextlib
import contextvars
from typing import TYPE_CHECKING, Any, NoReturn

from crewai.core.providers import human_input
from crewai.flow.flow_config import flow_config
from crewai.hooks import HookAborted, InterceptionPoint, register_hook, unregister_hook

from windlass_crewside import nobody
from windlass_crewside.budget import Spending
from windlass_crewside.faults import ProjectFault
from windlass_crewside.messages import ModelCalled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass_crewside.messages import Budget
    from windlass_crewside.report import Report


class Guard:
    """One for a run. The first reason to end it is the reason, and no model is called after it."""

    def __init__(self, budget: Budget, report: Report) -> None:
        self._spending = Spending(budget)
        self._report = report
        self._fault: ProjectFault | None = None

    def count_tokens(self, tokens: int) -> None:
        self._spending.count_tokens(tokens)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Raises why the run was ended, whatever crewai or the crew's code has made of it."""
        hooks = {
            InterceptionPoint.PRE_MODEL_CALL: self._before_model_call,
            InterceptionPoint.PRE_TOOL_CALL: self._before_step,
            InterceptionPoint.PRE_STEP: self._before_step,
        }
        for point, hook in hooks.items():
            register_hook(point, hook)
        try:
            with standing_for_persons(Person(self)):
                yield
        except Exception as error:
            if self._fault is not None:
                raise self._fault from error
            raise
        finally:
            for point, hook in hooks.items():
                unregister_hook(point, hook)
        if self._fault is not None:
            raise self._fault

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
            self._spending.begin_call()
        except ProjectFault as fault:
            self.abort(fault)
        self._report.send(ModelCalled())

    def abort(self, fault: ProjectFault) -> NoReturn:
        self._fault = self._fault or fault
        raise HookAborted(reason=self._fault.message, source="windlass")


class Person:
    """Stands where crewai looks for one: in tasks with human_input, and in the feedback and questions of flows."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def setup_messages(self, _: Any) -> bool:
        return False

    def post_setup_messages(self, _: Any) -> None:
        pass

    def handle_feedback(self, _: Any, context: Any) -> NoReturn:
        task = getattr(context.task, "name", None) or "without a name"
        self._guard.abort(nobody.asked_by(f"the task {task} asks a person (human_input)"))

    async def handle_feedback_async(self, answer: Any, context: Any) -> NoReturn:
        self.handle_feedback(answer, context)

    def request_feedback(self, context: Any, _: Any) -> NoReturn:
        method = getattr(context, "method_name", "of a flow")
        self._guard.abort(nobody.asked_by(f"the method {method} asks a person (human_feedback)"))

    def request_input(self, message: str, _: Any, metadata: Any = None) -> NoReturn:
        del metadata
        self._guard.abort(nobody.asked_by(f"a flow asks a person ({message!r})"))


@contextlib.contextmanager
def standing_for_persons(person: Person) -> Iterator[None]:
    """Takes the places that the project has not taken itself."""
    before = human_input._provider, flow_config.hitl_provider, flow_config.input_provider  # noqa: SLF001
    if not project_asks_elsewhere():
        # a default, where crewai sets a value: threads that crew code starts itself see it too
        human_input._provider = contextvars.ContextVar("human_input_provider", default=person)  # noqa: SLF001
    flow_config.hitl_provider = flow_config.hitl_provider or person
    flow_config.input_provider = flow_config.input_provider or person
    try:
        yield
    finally:
        human_input._provider, flow_config.hitl_provider, flow_config.input_provider = before  # noqa: SLF001


def project_asks_elsewhere() -> bool:
    """Whether its code has given crewai a way to ask persons that is not the console."""
    provider = human_input._provider.get()  # noqa: SLF001 - get_provider would make one
    return provider is not None and type(provider) is not human_input.SyncHumanInputProvider

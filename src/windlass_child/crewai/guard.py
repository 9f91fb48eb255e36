"""Ends a crew from within its process: after a request to stop, at a limit, and when the crew asks a person.

Each case raises crewai's HookAborted. It is the only exception that crewai neither retries nor wraps in any mode.
"""

from __future__ import annotations

import contextlib
import contextvars
from typing import TYPE_CHECKING, Any, NoReturn

from crewai.core.providers import human_input
from crewai.flow.flow_config import flow_config
from crewai.hooks import HookAborted, InterceptionPoint, register_hook, unregister_hook

from windlass_child.process.budget import Spending
from windlass_child.process.error_text import INSTEAD_OF_A_PERSON, ProjectFault
from windlass_child.process.messages import ModelCalled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass_child.process.messages import Budget
    from windlass_child.process.report import Report

APPROVALS_NOT_THERE = "approvals_not_there"
"""The code of the warning for a project that asks a person."""


class Guard:
    """Guards one run. The first reason to end the run is the one that is reported. No model is called after it."""

    def __init__(self, budget: Budget, report: Report) -> None:
        self._spending = Spending(budget)
        self._report = report
        self._fault: ProjectFault | None = None

    def count_tokens(self, tokens: int) -> None:
        self._spending.count_tokens(tokens)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Guards the run inside the `with` block.

        Raises the reason of its end, also if crewai or the crew's code caught or replaced that exception.
        """
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
    """Replaces crewai's providers of human answers, and ends the run when one is called.

    The providers are those of tasks with human_input, and of the feedback and the questions of flows.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def setup_messages(self, _: Any) -> bool:
        return False

    def post_setup_messages(self, _: Any) -> None:
        pass

    def handle_feedback(self, _: Any, context: Any) -> NoReturn:
        task = getattr(context.task, "name", None) or "without a name"
        self._guard.abort(asked_by(f"the task {task} asks a person (human_input)"))

    async def handle_feedback_async(self, answer: Any, context: Any) -> NoReturn:
        self.handle_feedback(answer, context)

    def request_feedback(self, context: Any, _: Any) -> NoReturn:
        method = getattr(context, "method_name", "of a flow")
        self._guard.abort(asked_by(f"the method {method} asks a person (human_feedback)"))

    def request_input(self, message: str, _: Any, metadata: Any = None) -> NoReturn:
        del metadata
        self._guard.abort(asked_by(f"a flow asks a person ({message!r})"))


@contextlib.contextmanager
def standing_for_persons(person: Person) -> Iterator[None]:
    """Installs `person` as each provider that the project has not set, inside the `with` block."""
    before = human_input._provider, flow_config.hitl_provider, flow_config.input_provider  # noqa: SLF001
    if not project_asks_elsewhere():
        # set as the variable's default and not as its value: threads that crew code starts see only the default
        human_input._provider = contextvars.ContextVar("human_input_provider", default=person)  # noqa: SLF001
    flow_config.hitl_provider = flow_config.hitl_provider or person
    flow_config.input_provider = flow_config.input_provider or person
    try:
        yield
    finally:
        human_input._provider, flow_config.hitl_provider, flow_config.input_provider = before  # noqa: SLF001


def project_asks_elsewhere() -> bool:
    """Returns whether the project's code has set a provider of human answers other than the console."""
    provider = human_input._provider.get()  # noqa: SLF001 - get_provider would create a provider
    return provider is not None and type(provider) is not human_input.SyncHumanInputProvider


def asked_by(what: str) -> ProjectFault:
    """Returns the fault for a project that asks a person. `what` names the part that asks, and how it asks."""
    return ProjectFault(f"{what}, and approvals are not supported yet", f"Remove it, {INSTEAD_OF_A_PERSON}")

"""Loads flows that are written in Python: subclasses of crewai's Flow with start, listen and router methods."""

from __future__ import annotations

import contextlib
import inspect
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from crewai.flow.flow import Flow
from pydantic import ValidationError

from windlass_child import frameworks, results
from windlass_child.crewai import bus, capabilities, events, flow_inputs
from windlass_child.crewai.flow_methods import MethodFollower, described, hush
from windlass_child.crewai.flow_shape import ASKS_APART, shape_of
from windlass_child.crewai.guard import Guard
from windlass_child.crewai.persons import WAITS_ALIVE
from windlass_child.journal.crew import CrewJournal
from windlass_child.journal.flow import FlowJournal
from windlass_child.kinds.importing import entry_module, made_without_kickoff, named_in, only_one, refuse_arguments
from windlass_child.process.error_text import InputsRefused, ProjectFault, StartedAtImport, text_of
from windlass_child.protocol.messages import Succeeded, TasksKnown, Warned
from windlass_child.reuse import baseline

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from windlass_child.process.prompts import Prompt
    from windlass_child.process.report import Report
    from windlass_child.protocol.messages import Project, Run


def load(project: Project) -> LoadedFlow:
    events.telemetry_as_wanted()
    hush()
    found = found_in(project)
    made = flow_of(found, project) if inspect.isroutine(found) else found
    flow_class: Any = made if isinstance(made, type) else type(made)
    definition = shape_of(flow_class)
    refuse_without_start(definition, flow_class.__name__, "Decorate one with @start().")
    if missing := flow_inputs.without_value(flow_class):
        raise ProjectFault(
            f"no kickoff can run {flow_class.__name__}: fields of its state have no default: {', '.join(missing)}",
            "Give each a default: crewai makes the state first, and puts the inputs into it then.",
            "never_runs",
        )
    if unresolved := flow_inputs.unresolved(flow_class):
        raise ProjectFault(
            f"no kickoff can run {flow_class.__name__}: the type of its state is not complete: {unresolved}",
            "Import the name outside of `if TYPE_CHECKING:`, because pydantic needs it at run time.",
            "never_runs",
        )
    if made is flow_class:
        refuse_arguments(flow_class, flow_class.__name__)
    elif made is found:
        baseline.refuse(baseline.MADE_AT_IMPORT.format(project.entrypoint))
    make = flow_class if made is flow_class else lambda: made
    return LoadedFlow(make, definition, flow_class.__qualname__, flow_inputs.schema(flow_class))


def found_in(project: Project) -> Any:
    """Returns the flow class of the entrypoint, the flow that its module makes, or a function that makes it."""
    try:
        module = entry_module(project)
    except StartedAtImport as started:
        baseline.refuse(baseline.STARTED_AT_IMPORT)
        sys.modules.update(started.modules)
        _, _, name = project.entrypoint.partition(":")
        found = started.names.get(name, started.started)
        if is_flow(found) or is_flow(type(found)):
            return found
        raise
    return flow_named(module, project) if ":" in project.entrypoint else only_class(module, project)


def flow_of(function: Any, project: Project) -> Any:
    """Returns the flow that a function makes, for a load: the run uses this one."""
    refuse_arguments(function, project.entrypoint)
    made = made_without_kickoff(function, "flow", project)
    if not is_flow(type(made)):
        raise ProjectFault(f"{project.entrypoint}() gave a {type(made).__name__}", "It must return a flow.")
    return made


class LoadedFlow:
    """The definition of a flow. The run calls `make`, because the construction of a flow starts threads."""

    def __init__(self, make: Callable[[], Any], definition: Any, name: str, inputs_schema: dict[str, Any]) -> None:
        self._make = make
        self._methods = definition.methods
        self._name = name
        self._inputs_schema = inputs_schema
        self._tasks = described(self._methods, name)

    def manifest(self) -> dict[str, Any]:
        return {
            "kind": "flow",
            "name": self._name.rpartition(".")[2],
            "inputs_schema": self._inputs_schema,
            "tasks": self._tasks,
            "framework": "crewai",
            "framework_version": version("crewai"),
        }

    def warnings(self) -> list[Warned]:
        return [*self._asking(), *capabilities.warnings("flow")]

    def _asking(self) -> list[Warned]:
        """Returns a warning for each method that asks a person in a way for which its process waits."""
        asking = {name: one.human_feedback for name, one in self._methods.items() if one.human_feedback is not None}
        if not ASKS_APART:
            why = f"with crewai {version('crewai')}"
            found = {name: why for name, one in asking.items() if getattr(one, "provider", None) is None}
        else:
            why = "because crewai may change the output by what it has learned (learn=True)"
            found = {name: why for name, one in asking.items() if one.learn and one.provider is None}
        at = list(self._methods)
        return [
            Warned(
                WAITS_ALIVE,
                f"the method {name} asks a person, and its process waits for the answer, {why}",
                at.index(name),
            )
            for name, why in found.items()
        ]

    def prompts(self) -> list[Prompt]:
        """Returns none: its prompts are made while it runs."""
        return []

    def construct(self) -> None:
        """Constructs the flow without a memory of its own, whose import takes a second.

        Stops where a constructor kicks off a crew: that would run the crew, and pay for it.
        """
        if isinstance(self._make, type):
            self._make._skip_auto_memory = True  # type: ignore[attr-defined]  # noqa: SLF001 - crewai has no option
        with frameworks.without_kickoffs(), contextlib.suppress(StartedAtImport):
            self._make()

    def run(self, order: Run, report: Report) -> Succeeded:
        report.send(TasksKnown(self._tasks))
        report.warn_all(capabilities.warnings("flow"))
        guard = Guard(order.budget, report)
        events.listen(report, lambda *_: None, guard.count_tokens)
        events.identify(order.kickoff_id)
        with guard.watching(), CrewJournal(report).kept():
            flow = self._make()
            journal = FlowJournal(flow, self._methods, MethodFollower(self._tasks, report), report)
            with journal.kept():
                output = results.exhausted(
                    kicked_off(flow, order.inputs, required=bool(self._inputs_schema.get("required")))
                )
        journal.end()
        bus.flush()
        return results.of_any(output, report)


def refuse_without_start(definition: Any, called: str, hint: str) -> None:
    """Raises ProjectFault for a flow without a start method. Such a flow ends without running any method."""
    conversational = definition.conversational is not None and definition.conversational.enabled
    if not conversational and not any(method.is_start for method in definition.methods.values()):
        raise ProjectFault(f"no kickoff can run {called}: none of its methods starts it", hint, "never_runs")


def kicked_off(flow: Any, inputs: dict[str, Any], *, required: bool) -> Any:
    """Runs the flow. Without inputs it is called as the project's own script calls it, so that crewai does not validate
    the defaults of the state. A flow that declares required inputs always gets a dictionary, which crewai validates.
    """
    try:
        return flow.kickoff(inputs=dict(inputs)) if inputs or required else flow.kickoff()
    except ValueError as error:
        if isinstance(error.__cause__, ValidationError) and str(error).startswith("Invalid inputs for"):
            raise InputsRefused(f"the flow's state does not take these inputs: {text_of(error.__cause__)}") from error
        raise


def is_flow(found: Any) -> bool:
    """Returns whether this is a flow class with methods. A subclass of a flow does not inherit its parent's methods."""
    return isinstance(found, type) and issubclass(found, Flow) and found is not Flow and bool(methods_of(found))


def methods_of(flow_class: Any) -> Any:
    return shape_of(flow_class).methods


def flow_named(module: ModuleType, project: Project) -> Any:
    found = named_in(module, project)
    if not is_flow(found) and not is_flow(type(found)) and not inspect.isroutine(found):
        raise ProjectFault(
            f"{project.entrypoint} is not a flow",
            "Name a subclass of crewai's Flow in pyproject.toml, that has methods with @start and @listen of its own.",
        )
    return found


def only_class(module: ModuleType, project: Project) -> Any:
    return only_one(
        module,
        project,
        is_flow,
        kind="flow",
        mark="that is a Flow with methods of its own",
        hint="Give it one, with a method that is decorated with @start().",
    )

"""Loads functions: [tool.windlass] entrypoint = "module:function". They may use any framework, or none."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

from windlass_child import frameworks, results
from windlass_child.journal import steps
from windlass_child.journal.fingerprint import task_key
from windlass_child.kinds.importing import entry_module, named_in
from windlass_child.kinds.parameters import Definitions, built, hints_of, schema_of
from windlass_child.process.error_text import InputsRefused, ProjectFault, text_of
from windlass_child.protocol.messages import Succeeded, TaskEnded, TasksKnown, TaskStarted, Warned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass_child.process.prompts import Prompt
    from windlass_child.process.report import Report
    from windlass_child.protocol.fields import KnownTask
    from windlass_child.protocol.messages import Project, Run

NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

PARAMETER_DOC = re.compile(r"^[ \t]*(?::param )?(?:\w+ )?(\w+)(?: \([^)\n]*\))?: (\S.*)$", re.MULTILINE)
""""Matches ":param name: text", and "name: text" and "name (type): text" under Args."""


def load(project: Project) -> LoadedFunction:
    function = named_in(entry_module(project), project)
    if not callable(function):
        raise ProjectFault(f"{project.entrypoint} is no function", "Name one in pyproject.toml, under [tool.windlass].")
    options = (adapter.option_for(function) for adapter in frameworks.adapters())
    if kind := next(filter(None, options), None):
        choice = f'[tool.windlass] {kind} = "{project.entrypoint}"'
        raise ProjectFault(f"{project.entrypoint} is a {kind} and no function", f"Write in pyproject.toml: {choice}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ProjectFault(
            f"no kickoff can run {project.entrypoint}: it is a generator, which gives no result",
            "Return a value instead of yielding, for example a list.",
            "never_runs",
        )
    loaded = LoadedFunction(function)
    positional = [one.name for one in loaded.parameters.values() if one.kind is one.POSITIONAL_ONLY]
    if positional:
        raise ProjectFault(
            f"{project.entrypoint} takes {', '.join(positional)} by position only",
            "Remove the `/` from its parameters.",
        )
    return loaded


class LoadedFunction:
    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._name = getattr(function, "__name__", type(function).__name__)
        self._doc = inspect.getdoc(function) or ""
        self.parameters = inspect.signature(function).parameters
        self._takes_steps = steps.PARAMETER in self.parameters and steps.wanted_by(self.parameters, self._hints)
        given = {steps.PARAMETER} if self._takes_steps else set()
        self._named = [one for one in self.parameters.values() if one.kind in NAMED and one.name not in given]

    @property
    def _takes_any(self) -> bool:
        return any(one.kind is one.VAR_KEYWORD for one in self.parameters.values())

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return hints_of(self._function)

    def manifest(self) -> dict[str, Any]:
        return {"kind": "function", "name": self._name, "inputs_schema": self._schema(), "tasks": [self._task()]}

    def _task(self) -> KnownTask:
        return {"key": task_key(self._doc or self._name), "name": self._name, "agent": None}

    def _schema(self) -> dict[str, Any]:
        definitions: Definitions = {}
        described = dict(PARAMETER_DOC.findall(self._doc))
        properties = {one.name: self._property(one, described, definitions) for one in self._named}
        required = [one.name for one in self._named if one.default is one.empty]
        schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
        closed = {} if self._takes_any else {"additionalProperties": False}
        return schema | closed | ({"$defs": definitions} if definitions else {})

    def _property(self, one: inspect.Parameter, described: dict[str, str], definitions: Definitions) -> dict[str, Any]:
        description = {"description": described[one.name]} if one.name in described else {}
        schema = description | schema_of(self._hints.get(one.name, Any), definitions)
        return schema | default_of(one)

    def warnings(self) -> list[Warned]:
        return []

    def prompts(self) -> list[Prompt]:
        """Returns none: its prompts are made while it runs."""
        return []

    def construct(self) -> None:
        """Does nothing: only a run calls the function."""

    def run(self, order: Run, report: Report) -> Succeeded:
        arguments = self._arguments(order.inputs)
        task = self._task()
        report.send(TasksKnown([task]))
        began = time.time()
        report.send(TaskStarted(0, **task, at=began))
        try:
            with self._stepping(arguments, report), watched(order, report, self._first_record()):
                value = self._call(arguments)
                value = returned_crew(value, order.inputs)
            result = results.of_any(value, report)
        except BaseException:
            report.send(TaskEnded(0, "failed", time.time()))
            raise
        ended = time.time()
        report.send(TaskEnded(0, "completed", ended, result.output, None, ended - began))
        return result

    @contextlib.contextmanager
    def _stepping(self, arguments: dict[str, Any], report: Report) -> Iterator[None]:
        """Adds the argument `steps` if the function takes it."""
        if not self._takes_steps:
            yield
            return
        given = steps.Steps(self._name, report)
        arguments[steps.PARAMETER] = given
        with given.kept():
            yield

    def _first_record(self) -> int | None:
        """Returns the first position for tasks of crews, or None beside steps, which take these positions."""
        return None if self._takes_steps else steps.FIRST

    def _call(self, arguments: dict[str, Any]) -> Any:
        result = self._function(**arguments)
        return results.exhausted(asyncio.run(awaited(result)) if inspect.isawaitable(result) else result)

    def _arguments(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the inputs, built as annotated.

        Omits inputs without a parameter, unless the function has a ** parameter. The server warns about them.
        """
        taken = {one.name: one for one in self._named}
        missing = [name for name, one in taken.items() if one.default is one.empty and name not in inputs]
        if missing:
            raise InputsRefused(f"{self._name} needs inputs that were not given: {', '.join(missing)}")
        return {
            name: self._built(name, value) if name in taken else value
            for name, value in inputs.items()
            if name in taken or self._takes_any
        }

    def _built(self, name: str, value: Any) -> Any:
        try:
            return built(self._hints.get(name, Any), value)
        except (TypeError, ValueError) as error:
            raise InputsRefused(f"the input {name} does not fit: {text_of(error)}") from error


@contextlib.contextmanager
def watched(order: Run, report: Report, first_record: int | None = None) -> Iterator[None]:
    """Guards and journals the crews and flows that the function runs, so that they can be stopped and resumed."""
    with frameworks.watching(order, report, first_record):
        yield
    report.warn_of_leftovers()


def returned_crew(value: Any, inputs: dict[str, Any]) -> Any:
    """Runs a crew or a flow that the function made and did not run. Returns any other value unchanged."""
    for adapter in frameworks.imported():
        if (output := adapter.kicked_off(value, inputs)) is not None:
            return results.exhausted(output)
    return value


async def awaited(result: Any) -> Any:
    return await results.exhausted_meanwhile(await result)


def default_of(parameter: inspect.Parameter) -> dict[str, Any]:
    if parameter.default is parameter.empty:
        return {}
    return results.default(parameter.default)

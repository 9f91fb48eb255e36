"""What no kickoff can run, though it can be loaded."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from windlass_crewside.checking.found import Found, error
from windlass_crewside.frameworks.importing import entry_module, named_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass_crewside.messages import Project


def findings(project: Project, tasks: list[Any]) -> Iterator[Found]:
    if not tasks:
        yield error("never_runs", "the crew has no tasks.", None, None, "Give it some: Crew(tasks=self.tasks), say.")
    if project.kind == "function":
        yield from of_function(project)


def of_function(project: Project) -> Iterator[Found]:
    function = named_in(entry_module(project), project)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        message = f"{project.entrypoint} is a generator, which gives no result."
        yield error("never_runs", message, None, None, "Return a value instead of yielding: a list, say.")

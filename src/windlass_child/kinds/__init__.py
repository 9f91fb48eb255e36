"""The kinds of project. Each kind is one module, named as in `Project.kind`. KINDS is the registry.

A kind's module has one function, `load(project) -> Loaded`. It imports the project's code and builds the object to run.
It raises `ProjectFault` with a message for the errors that it recognises. The caller explains all other exceptions of
crew code.

The zygote imports and builds nothing of a project. `load` is called in a child, after the environment and the working
folder are set. docs/development/adding-a-kind.md shows how to add a kind.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from windlass_child import frameworks
from windlass_child.process.error_text import ProjectFault
from windlass_child.process.process_env import without_dotenv

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from windlass_child.process.prompts import Prompt
    from windlass_child.process.report import Report
    from windlass_child.protocol.messages import Project, Run, Succeeded, Warned


class Kind(NamedTuple):
    """`framework`: the framework that the kind's module imports. Each zygote imports the module of a kind without one.

    `is_declaration`: whether the entrypoint is a file that declares the project. A fault without a place is in it.
    `built_at_load`: whether a load builds all that a run needs. What a load passed over is then no error.
    `constructs`: whether a run constructs an object of the project that a load does not construct.
    """

    framework: str | None
    is_declaration: bool = False
    built_at_load: bool = False
    constructs: bool = False


KINDS = {
    "crew": Kind("crewai", built_at_load=True),
    "json_crew": Kind("crewai", is_declaration=True),
    "flow": Kind("crewai", constructs=True),
    "declarative_flow": Kind("crewai", is_declaration=True, constructs=True),
    "function": Kind(None),
}


class Loaded(Protocol):
    """A project that is imported and built. It can be described, and run once."""

    def manifest(self) -> dict[str, Any]:
        """Returns the argument of windlass.kickoffs.manifest.Manifest.from_json."""

    def warnings(self) -> list[Warned]:
        """Returns the parts that will not work, or will work in another way than the author may expect."""

    def prompts(self) -> Iterable[Prompt]:
        """Returns the texts of the project that models get, as they are written. Inputs are not filled in."""

    def construct(self) -> None:
        """Builds what a run builds before it begins, and discards it. `windlass check` calls it."""

    def run(self, order: Run, report: Report) -> Succeeded:
        """Runs the project, reports its progress, and returns its result.

        Raises InputsRefused, and every exception of crew code.
        """


def load(project: Project) -> Loaded:
    if project.kind not in KINDS:
        raise ProjectFault(f"projects of the kind {project.kind!r} are not served", f"Known are: {', '.join(KINDS)}.")
    if framework := KINDS[project.kind].framework:
        frameworks.refuse_too_old(framework)
    if f"{__name__}.{project.kind}" not in sys.modules:
        with without_dotenv():
            module_of(project.kind)
    for adapter in frameworks.imported():
        adapter.prepare_child()
    loaded: Loaded = module_of(project.kind).load(project)
    return loaded


def module_of(kind: str) -> ModuleType:
    return import_module(f"{__name__}.{kind}")


def import_those_without_framework() -> None:
    for name, kind in KINDS.items():
        if kind.framework is None:
            module_of(name)

"""The kinds of project, one module each, named as in `Project.kind`.

A kind's module has one function, `load(project) -> Loaded`: it imports the project's code and builds what is to be
run. It raises `ProjectFault` where it knows words for what is wrong; what else crew code raises is explained for it.
Nothing is imported or built in the zygote: `load` is called in a child, whose environment and folder are set by then.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from windlass_crewside.faults import ProjectFault
from windlass_crewside.frameworks.crew_storage import storage_as_wanted
from windlass_crewside.surroundings import without_dotenv

if TYPE_CHECKING:
    from windlass_crewside.messages import Project, Run, Succeeded, Warned
    from windlass_crewside.report import Report

KINDS = ("crew", "json_crew", "flow", "declarative_flow", "function")


class Loaded(Protocol):
    """A project that is imported and built, and can be described or run (once)."""

    def manifest(self) -> dict[str, Any]:
        """What windlass.kickoffs.manifest.Manifest.from_json takes."""

    def warnings(self) -> list[Warned]:
        """What in it will not work, or not as its author may expect."""

    def run(self, order: Run, report: Report) -> Succeeded:
        """Runs it, reports on the way, and gives the result. Raises InputsRefused, or whatever crew code raises."""


def load(project: Project) -> Loaded:
    if project.kind not in KINDS:
        raise ProjectFault(f"projects of the kind {project.kind!r} are not served", f"Known are: {', '.join(KINDS)}.")
    with without_dotenv():
        module = import_module(f"{__name__}.{project.kind}")
    storage_as_wanted()
    loaded: Loaded = module.load(project)
    return loaded

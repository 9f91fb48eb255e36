"""The kinds of project. Each kind is one module, named as in `Project.kind`.

A kind's module has one function, `load(project) -> Loaded`. It imports the project's code and builds the object to run.
It raises `ProjectFault` with a message for the errors that it recognises. The caller explains all other exceptions of
crew code.

The zygote imports and builds nothing of a project. `load` is called in a child, after the environment and the working
folder are set.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from windlass_child.crewai.storage import storage_as_wanted
from windlass_child.process.error_text import ProjectFault
from windlass_child.process.process_env import without_dotenv

if TYPE_CHECKING:
    from windlass_child.process.messages import Project, Run, Succeeded, Warned
    from windlass_child.process.report import Report

KINDS = ("crew", "json_crew", "flow", "declarative_flow", "function")


class Loaded(Protocol):
    """A project that is imported and built. It can be described, and run once."""

    def manifest(self) -> dict[str, Any]:
        """Returns the argument of windlass.kickoffs.manifest.Manifest.from_json."""

    def warnings(self) -> list[Warned]:
        """Returns the parts that will not work, or will work in another way than the author may expect."""

    def run(self, order: Run, report: Report) -> Succeeded:
        """Runs the project, reports its progress, and returns its result.

        Raises InputsRefused, and every exception of crew code.
        """


def load(project: Project) -> Loaded:
    if project.kind not in KINDS:
        raise ProjectFault(f"projects of the kind {project.kind!r} are not served", f"Known are: {', '.join(KINDS)}.")
    with without_dotenv():
        module = import_module(f"{__name__}.{project.kind}")
    storage_as_wanted()
    loaded: Loaded = module.load(project)
    return loaded

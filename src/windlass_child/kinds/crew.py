"""Loads classic crews: packages with a class that is decorated with @CrewBase."""

from __future__ import annotations

import inspect
import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crewai import Crew

from windlass_child.crewai import events, inputs
from windlass_child.crewai.guard import APPROVALS_NOT_THERE, Guard, asked_by, project_asks_elsewhere
from windlass_child.crewai.tasks import TaskFollower, described
from windlass_child.journal.crew import CrewJournal
from windlass_child.kinds import results
from windlass_child.kinds.importing import entry_module, named_in, only_one
from windlass_child.process.error_text import InputsRefused, ProjectFault, inside, text_of, unset_variable, where
from windlass_child.process.messages import Succeeded, TasksKnown, Warned

if TYPE_CHECKING:
    from types import ModuleType

    from windlass_child.process.messages import Project, Run
    from windlass_child.process.report import Report


def load(project: Project) -> LoadedCrew:
    events.telemetry_as_wanted()
    module = entry_module(project)
    crew_class = class_named(module, project) if ":" in project.entrypoint else only_class(module, project)
    crew = build(crew_class, project)
    return LoadedCrew(crew, crew_class.__name__, inputs.find(crew, preparations(crew, crew_class)))


class LoadedCrew:
    """A crew that is built. `inputs` are those that its texts use and those that the project declares."""

    def __init__(self, crew: Any, name: str, inputs: list[inputs.Input]) -> None:
        if not crew.tasks:
            raise ProjectFault(
                f"no kickoff can run {name}: it has no tasks",
                "Add tasks, for example: Crew(tasks=self.tasks).",
                "never_runs",
            )
        self._crew = crew
        self._name = name
        self._tasks = [described(task) for task in crew.tasks]
        self._inputs = inputs

    def manifest(self) -> dict[str, Any]:
        return {
            "kind": "crew",
            "name": self._name,
            "inputs_schema": inputs.schema(self._inputs),
            "tasks": self._tasks,
            "agents": [{"role": agent.role.strip(), "goal": agent.goal.strip()} for agent in self._crew.agents],
            "framework": "crewai",
            "framework_version": version("crewai"),
        }

    def warnings(self) -> list[Warned]:
        return [Warned(APPROVALS_NOT_THERE, str(fault), position) for position, fault in self._asking()]

    def run(self, order: Run, report: Report) -> Succeeded:
        self._refuse_missing(order.inputs)
        for _, fault in self._asking():
            raise fault
        report.send(TasksKnown(self._tasks))
        follower = TaskFollower(self._crew.tasks, report)
        guard = Guard(order.budget, report)
        events.listen(report, follower.follow, guard.count_tokens)
        events.identify(order.kickoff_id)
        with guard.watching(), CrewJournal(report, self._crew, follower).kept():
            # always a dict: with None, crewai does not fill in the placeholders
            output = results.exhausted(self._crew.kickoff(inputs=self._defaults() | order.inputs))
        follower.skip_the_rest()
        report.warn_of_leftovers()
        events.flush()
        return results.of_a_crew(output, report)

    def _asking(self) -> list[tuple[int, ProjectFault]]:
        """Returns (position, fault) of each task that asks a person. Returns [] if the project has its own provider."""
        if project_asks_elsewhere():
            return []
        return [
            (position, asked_by(f"the task {task.name or position + 1} asks a person (human_input)"))
            for position, task in enumerate(self._crew.tasks)
            if task.human_input
        ]

    def _defaults(self) -> dict[str, Any]:
        return {found.name: found.default["default"] for found in self._inputs if found.default}

    def _refuse_missing(self, inputs: dict[str, Any]) -> None:
        missing = [found.name for found in self._inputs if found.required and found.name not in inputs]
        if missing:
            raise InputsRefused(f"the crew needs inputs that were not given: {', '.join(missing)}")


def class_named(module: ModuleType, project: Project) -> Any:
    found = named_in(module, project)
    if not is_crew_class(found):
        raise ProjectFault(
            f"{project.entrypoint} is not a crew", "Name a class that is decorated with @CrewBase in pyproject.toml."
        )
    return found


def only_class(module: ModuleType, project: Project) -> Any:
    return only_one(
        module, project, is_crew_class, kind="crew", mark="with @CrewBase", hint="Decorate the crew's class with it."
    )


def is_crew_class(found: Any) -> bool:
    return bool(getattr(found, "is_crew_class", False))


def build(crew_class: Any, project: Project) -> Any:
    method = getattr(crew_class, "crew", None)
    if method is None:
        raise ProjectFault(
            f"the class {crew_class.__name__} has no method crew()", "Give it one, decorated with @crew."
        )
    try:
        crew = crew_class().crew()
    except (KeyError, AttributeError) as error:
        if unset_variable(error):
            raise
        raise misconfigured(error, crew_class, project) from error
    if not isinstance(crew, Crew):
        raise ProjectFault(
            f"{crew_class.__name__}.crew() gave a {type(crew).__name__}", "It must return a crewai.Crew."
        )
    return crew


def misconfigured(error: Exception, crew_class: Any, project: Project) -> ProjectFault:
    """Explains a KeyError or AttributeError of the class.

    The usual cause is a missing YAML file, or a YAML file without a name that the class reads.
    """
    root = Path(project.root)
    place = where(error, root) or inside(inspect.getfile(crew_class), root)
    files = [path for path in config_files(crew_class) if path is not None]
    missing = [os.path.relpath(path, root) for path in files if not path.is_file()]
    if missing:
        hint = f"There is no {' and no '.join(missing)}: crewai looks there for what the class calls its config."
    else:
        hint = f"Look for the name in {' and '.join(os.path.relpath(path, root) for path in files) or 'the class'}."
    return ProjectFault(
        f"{crew_class.__name__} can't be built: {type(error).__name__}: {text_of(error)} ({place})", hint
    )


def config_files(crew_class: Any) -> list[Path | None]:
    named = (crew_class.original_agents_config_path, crew_class.original_tasks_config_path)
    return [Path(crew_class.base_directory) / path if isinstance(path, str) else None for path in named]


def preparations(crew: Any, crew_class: Any) -> list[Any]:
    marked = [method for method in vars(crew_class).values() if getattr(method, "is_before_kickoff", False)]
    return [getattr(method, "_meth", method) for method in marked] + list(crew.before_kickoff_callbacks)

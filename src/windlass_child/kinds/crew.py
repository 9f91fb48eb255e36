"""Loads crews that are written in Python.

The entrypoint is a class with @CrewBase, another class with a method crew(), a function that returns a crew, or a crew
that a module makes.
"""

from __future__ import annotations

import inspect
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crewai import Crew

from windlass_child import results
from windlass_child.crewai import bus, capabilities, events, inputs, knowledge, texts
from windlass_child.crewai.callbacks import after_kickoff, before_kickoff, names_of, refuse_async
from windlass_child.crewai.guard import Guard
from windlass_child.crewai.persons import PAUSES, WAITS_ALIVE, project_asks_elsewhere
from windlass_child.crewai.tasks import TaskFollower, described, followed_without_events
from windlass_child.journal.crew import CrewJournal
from windlass_child.kinds.importing import entry_module, made_without_kickoff, named_in, only_one, refuse_arguments
from windlass_child.process.error_text import (
    InputsRefused,
    ProjectFault,
    StartedAtImport,
    inside,
    text_of,
    unset_variable,
    where,
)
from windlass_child.process.prompts import Prompt
from windlass_child.protocol.messages import Succeeded, TasksKnown, Warned
from windlass_child.reuse import baseline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    from windlass_child.process.report import Report
    from windlass_child.protocol.messages import Project, Run

TEXTS_OF_TASKS = ("description", "expected_output")
TEXTS_OF_AGENTS = ("role", "goal", "backstory")


def load(project: Project) -> LoadedCrew:
    events.telemetry_as_wanted()
    try:
        module = entry_module(project)
    except StartedAtImport as started:
        return of_a_script(started, project)
    found = named_in(module, project) if ":" in project.entrypoint else only_class(module, project)
    if not isinstance(found, type) and not inspect.isfunction(found):
        baseline.refuse(baseline.MADE_AT_IMPORT.format(project.entrypoint))
    crew = built_without_kickoff(found, project)
    name = getattr(found, "__name__", project.entrypoint.rpartition(":")[2])
    return LoadedCrew(crew, name, inputs.find(crew, preparations(crew, found)))


def of_a_script(started: StartedAtImport, project: Project) -> LoadedCrew:
    """Loads the crew of a module that kicks off a crew at import. The inputs of that kickoff become defaults.

    Raises `started` if the entrypoint is not defined above that kickoff.
    """
    baseline.refuse(baseline.STARTED_AT_IMPORT)
    sys.modules.update(started.modules)
    _, _, name = project.entrypoint.partition(":")
    own = [one for one in started.names.values() if is_crew_class(one) and one.__module__ == started.names["__name__"]]
    found = started.names.get(name) if name else own[0] if len(own) == 1 else None
    if found is None:
        raise started
    crew = built_without_kickoff(found, project)
    found_inputs = inputs.find(crew, preparations(crew, found), started.inputs)
    return LoadedCrew(crew, name or found.__name__, found_inputs, [of_the_rest(started, project)])


def of_the_rest(started: StartedAtImport, project: Project) -> Warned:
    place = where(started, Path(project.root))
    message = f"{place} starts the crew while it is imported."
    return Warned(started.code, f"{message} Windlass does not run this line and the lines after it. {started.hint}")


class LoadedCrew:
    """A crew that is built. `inputs` are those that its texts use and those that the project declares."""

    def __init__(self, crew: Any, name: str, inputs: list[inputs.Input], warned: Sequence[Warned] = ()) -> None:
        if not crew.tasks:
            raise ProjectFault(
                f"no kickoff can run {name}: it has no tasks",
                "Add tasks, for example: Crew(tasks=self.tasks).",
                "never_runs",
            )
        refuse_async(crew)
        self._crew = crew
        self._name = name
        self._tasks = [described(task) for task in crew.tasks]
        self._inputs = inputs
        self._warned = warned

    def manifest(self) -> dict[str, Any]:
        return {
            "kind": "crew",
            "name": self._name,
            "inputs_schema": inputs.schema(self._inputs, self._crew),
            "tasks": self._tasks,
            "agents": [{"role": agent.role.strip(), "goal": agent.goal.strip()} for agent in self._crew.agents],
            "framework": "crewai",
            "framework_version": version("crewai"),
        }

    def warnings(self) -> list[Warned]:
        return [*self._warned, *asking(self._crew), *texts.warnings(self._crew), *capabilities.warnings("crew")]

    def prompts(self) -> Iterator[Prompt]:
        for position, task in enumerate(self._crew.tasks):
            for name in TEXTS_OF_TASKS:
                words = f"the {name.replace('_', ' ')} of the task {task.name or position + 1}"
                yield Prompt(words, str(getattr(task, name, "")), position)
        for agent in self._crew.agents:
            for name in TEXTS_OF_AGENTS:
                yield Prompt(f"the {name} of an agent", str(getattr(agent, name, "")))

    def construct(self) -> None:
        """Does nothing: the crew is built when it is loaded."""

    def run(self, order: Run, report: Report) -> Succeeded:
        self._refuse_missing(order.inputs)
        report.send(TasksKnown(self._tasks))
        report.warn_all(capabilities.warnings("crew"))
        follower = TaskFollower(self._crew.tasks, report)
        guard = Guard(order.budget, report, follower)
        events.listen(report, follower.follow, guard.count_tokens)
        events.identify(order.kickoff_id)
        journal = CrewJournal(report, self._crew, follower)
        with guard.watching(), followed_without_events(follower), journal.kept():
            # always a dict: with None, crewai does not fill in the placeholders
            output = results.exhausted(self._crew.kickoff(inputs=self._defaults() | order.inputs))
        follower.skip_the_rest()
        report.warn_of_leftovers()
        knowledge.warn_of_failures(report)
        report.warn_all(texts.without_model(self._crew))
        bus.flush()
        return self._result(output, report)

    def _result(self, output: Any, report: Report) -> Succeeded:
        """Converts the output of the crew, or the value that an @after_kickoff method returned in its place."""
        if output is None and (called := names_of(after_kickoff(self._crew))):
            report.warn("result_not_json", f"the result is empty, because {called} (@after_kickoff) returns nothing")
        try:
            return results.of_any(output, report)
        except results.NoResult as fault:
            called = names_of(after_kickoff(self._crew))
            if called and not results.is_output(output):
                fault.message += f"; {called} (@after_kickoff) returned it"
            raise

    def _defaults(self) -> dict[str, Any]:
        return {found.name: found.default["default"] for found in self._inputs if found.default}

    def _refuse_missing(self, inputs: dict[str, Any]) -> None:
        missing = [found.name for found in self._inputs if found.required and found.name not in inputs]
        if missing:
            raise InputsRefused(f"the crew needs inputs that were not given: {', '.join(missing)}")


def asking(crew: Any) -> list[Warned]:
    """Returns a warning for each task that asks a person, if this crewai can't pause for it."""
    if PAUSES or project_asks_elsewhere():
        return []
    waits = f"and with crewai {version('crewai')} the process of a kickoff waits for the answer"
    return [
        Warned(WAITS_ALIVE, f"the task {task.name or position + 1} asks a person (human_input), {waits}", position)
        for position, task in enumerate(crew.tasks)
        if task.human_input
    ]


def only_class(module: ModuleType, project: Project) -> Any:
    """Returns the only class with @CrewBase of a module, or the only crew that a module without such a class makes."""
    made = [found for found in vars(module).values() if isinstance(found, Crew)]
    if len(made) == 1 and not any(map(is_crew_class, vars(module).values())):
        return made[0]
    return only_one(
        module, project, is_crew_class, kind="crew", mark="with @CrewBase", hint="Decorate the crew's class with it."
    )


def is_crew_class(found: Any) -> bool:
    return bool(getattr(found, "is_crew_class", False))


def built_without_kickoff(found: Any, project: Project) -> Any:
    """Returns the crew of the entrypoint, which is a crew, a class, or a function without arguments."""
    made_by, make = maker(found, project)
    crew = made_without_kickoff(make, "crew", project)
    if isinstance(crew, Crew):
        return crew
    raise ProjectFault(f"{made_by} gave a {type(crew).__name__}", "It must return a crewai.Crew.")


def maker(found: Any, project: Project) -> tuple[str, Callable[[], Any]]:
    """Returns what makes the crew, for messages, and a function that makes it."""
    called = getattr(found, "__name__", project.entrypoint)
    if isinstance(found, type):
        method = crew_method(found, project)
        return f"{called}.{method}()", lambda: built_by(found, method, project)
    if callable(getattr(found, "crew", None)):
        return f"{project.entrypoint}.crew()", found.crew
    if callable(found):
        refuse_arguments(found, called)
        return f"{called}()", found
    return project.entrypoint, lambda: found


def built_by(crew_class: Any, method: str, project: Project) -> Any:
    refuse_arguments(crew_class, crew_class.__name__)
    try:
        return getattr(crew_class(), method)()
    except (KeyError, AttributeError) as error:
        if unset_variable(error) or not is_crew_class(crew_class):
            raise
        raise misconfigured(error, crew_class, project) from error


def crew_method(crew_class: Any, project: Project) -> str:
    """Returns "crew", or the name of the method with @crew, or of one that is annotated to return a crew."""
    if any("crew" in vars(base) for base in crew_class.__mro__):
        return "crew"
    methods = {name: inspect.getattr_static(crew_class, name) for name in dir(crew_class) if not name.startswith("__")}
    for is_one in is_decorated, returns_crew:
        if found := next((name for name, method in methods.items() if is_one(method)), None):
            return found
    if is_crew_class(crew_class):
        raise ProjectFault(
            f"the class {crew_class.__name__} has no method crew()", "Give it one, decorated with @crew."
        )
    raise ProjectFault(
        f"{project.entrypoint} is not a crew",
        "Name a class with @CrewBase, a class with a method crew(), a function that returns a crewai.Crew, or a Crew.",
    )


def is_decorated(method: Any) -> bool:
    """Returns whether @crew made a method: the only decorator of crewai that leaves no mark on it."""
    if not inspect.isfunction(method) or any(name.startswith("is_") for name in vars(method)):
        return False
    return method.__globals__.get("__name__") in {"crewai.project.annotations", "crewai.project.utils"}


def returns_crew(method: Any) -> bool:
    return getattr(method, "__annotations__", {}).get("return") in (Crew, "Crew")


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


def preparations(crew: Any, found: Any) -> list[Any]:
    # older releases put the decorated class below one of their own
    bases = found.__mro__ if isinstance(found, type) else ()
    members = [method for base in bases for method in vars(base).values()]
    marked = [method for method in members if getattr(method, "is_before_kickoff", False)]
    return [getattr(method, "_meth", method) for method in marked] + before_kickoff(crew)

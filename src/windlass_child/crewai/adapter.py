"""Adapts crewai (windlass_child.frameworks.Adapter). The other modules of this package import crewai."""

from __future__ import annotations

import contextlib
import re
import sys
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass_child import frameworks
from windlass_child.crewai import flow_databases
from windlass_child.process.error_text import NOT_FOUND, InputsRefused
from windlass_child.replacements import replace_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass_child.process.report import Report
    from windlass_child.project_files.code import Code
    from windlass_child.project_files.found import Found
    from windlass_child.protocol.messages import Project, Run

QUIET = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TRACING_ENABLED": "false",
}
"""CREWAI_TRACING_ENABLED=false also saves 5 s on the first run with a home folder."""

OLDEST = (0, 80)
"""The oldest release that runs: the crews of older ones have no place for what a kickoff needs."""

LASTING_THREADS = frozenset({"LanceDBBackgroundEventLoop", "lancedb-tokio-w", "jemalloc_bg_thd"})
"""Those of LanceDB, which each flow imports for its memory: that takes seconds."""

OPTIONS = {"crew": "is_crew_class", "flow": "flow_definition"}
"""Options of [tool.windlass], and the attributes of the objects that they name."""

STORES = {"crewai.rag.chromadb": "", "crewai.rag.qdrant": "qdrant"}
"""Packages with a module that holds a path in crewai's storage, and the last part of that path."""
DATABASES = (
    "crewai.memory.storage.kickoff_task_outputs_storage:KickoffTaskOutputsSQLiteStorage",
    "crewai.memory.storage.ltm_sqlite_storage:LTMSQLiteStorage",
)
"""The databases of older releases."""
STORAGE = "CREWAI_STORAGE_DIR"
MODULES = ("constants", "config")
PATH = "DEFAULT_STORAGE_PATH"


def storage_variables(storage: Path) -> dict[str, str]:
    return {STORAGE: str(storage)}


def too_old() -> str:
    with contextlib.suppress(PackageNotFoundError):
        installed = version("crewai")
        if tuple(map(int, re.findall(r"\d+", installed)[:2])) < OLDEST:
            return installed
    return ""


def unknown_agent(variables: dict[str, Any]) -> str:
    """Returns the text for a task of `Crew(config=...)` whose agent the crew does not have."""
    there = ", ".join(repr(agent.role) for agent in variables["self"].agents)
    return f"a task names the agent {variables['task_config']['agent']!r}, and the crew has {there or 'no agent'}"


NOT_FOUND["crewai/crew.py", "_create_task"] = unknown_agent


def warm() -> None:
    from windlass_child.crewai import prewarm

    prewarm.warm(watching)


def degraded() -> list[str]:
    from windlass_child.crewai import capabilities

    return capabilities.degraded()


def stop_threads() -> None:
    from windlass_child.crewai import bus

    bus.stop_threads()


def restart_threads() -> None:
    from windlass_child.crewai import bus

    bus.restart_threads()


def prepare_child() -> None:
    restart_threads()
    note_failures_of_knowledge()
    move_stores()
    flow_databases.make_tables()


def note_failures_of_knowledge() -> None:
    if "crewai.utilities.logger" in sys.modules:
        from windlass_child.crewai import knowledge

        knowledge.note_failures()


def move_stores() -> None:
    """Sets the paths of crewai's stores, which crewai fixes at import.

    Otherwise all children of a zygote would share one store, and crews would read the knowledge of other crews.
    """
    modules = [(f"{package}.{name}", end) for package, end in STORES.items() for name in MODULES]
    found = [(sys.modules[name], end) for name, end in modules if hasattr(sys.modules.get(name), PATH)]
    constructors = [(name, one) for name in DATABASES if (one := constructor(name)) is not None]
    if not found and not constructors:
        return
    from windlass_child.crewai.features import first_of

    folder = Path(first_of("crewai_core.paths:db_storage_path", "crewai.utilities.paths:db_storage_path")())
    for module, end in found:
        replace_name(f"{module.__name__}:{PATH}", partial(placed, str(folder / end)))
    for name, one in constructors:
        place = str(folder / Path(one.__defaults__[0]).name)
        replace_name(f"{name}.__init__.__defaults__", partial(placed, (place,)), one)


def placed(value: Any, _: Any) -> Any:
    return value


def constructor(name: str) -> Any:
    """Returns the constructor of a database if its only default is a path, which crewai has fixed at import."""
    module, _, attribute = name.partition(":")
    found = getattr(getattr(sys.modules.get(module), attribute, None), "__init__", None)
    defaults = getattr(found, "__defaults__", None)
    return found if defaults and len(defaults) == 1 and isinstance(defaults[0], str) else None


def note_databases() -> None:
    flow_databases.note()


def snapshot() -> Callable[[], None]:
    from windlass_child.crewai import shared_state

    return shared_state.snapshot()


@contextlib.contextmanager
def watching(order: Run, report: Report, first_record: int | None = None) -> Iterator[None]:
    """Makes the crews and flows stoppable. Finished tasks of crews are not run again.

    A warning is sent for each capability that a function's crews and flows would use and that is off.
    """
    frameworks.refuse_too_old("crewai")
    from windlass_child.crewai import bus, capabilities, events, knowledge
    from windlass_child.crewai.guard import Guard
    from windlass_child.crewai.tasks import TaskFollower, followed_without_events
    from windlass_child.journal.crew import CrewJournal

    report.warn_all(capabilities.warnings("function"))
    follower = None if first_record is None else TaskFollower([], report, first_record)
    guard = Guard(order.budget, report, follower)
    events.listen(report, follower.follow if follower else lambda *_: None, guard.count_tokens)
    with guard.watching(), followed_without_events(follower), CrewJournal(report, None, follower).kept():
        yield
    knowledge.warn_of_failures(report)
    bus.flush()


def without_kickoffs() -> contextlib.AbstractContextManager[None]:
    from windlass_child.crewai import kickoffs

    return kickoffs.refused()


RUNNABLES = {
    "Crew": "Return the result of its kickoff().",
    "Flow": "Return the result of its kickoff(), or name the class of the flow as the entrypoint.",
    "BaseAgent": "Return the result of its kickoff(...).",
    "LiteAgent": "Return the result of its kickoff(...).",
    "Task": "Return the result of the crew that runs it.",
    "BaseLLM": "Return the result of its call(...).",
    "LLM": "Return the result of its call(...).",
    "BaseTool": "Return the result of its run(...).",
    "Memory": "Return what it holds.",
    "Knowledge": "Return what it holds.",
}
"""The classes of crewai whose objects are no results, and what to do. Such an object may hold API keys."""


def runnable(found: Any) -> str | None:
    if getattr(type(found), "is_crew_class", False):
        return "Crew"
    own = (one.__name__ for one in type(found).__mro__ if one.__module__.partition(".")[0] == "crewai")
    return next((name for name in own if name in RUNNABLES), None)


def how_to_run(name: str) -> str:
    return RUNNABLES[name]


def kicked_off(found: Any, inputs: dict[str, Any]) -> Any:
    from windlass_child.crewai.callbacks import before_kickoff, refuse_async
    from windlass_child.crewai.inputs import find

    called = runnable(found)
    if called == "Flow":
        return found.kickoff(inputs=dict(inputs)) if inputs else found.kickoff()
    if called != "Crew":
        return None
    crew = found.crew() if getattr(type(found), "is_crew_class", False) else found
    refuse_async(crew)
    wanted = find(crew, before_kickoff(crew))
    if missing := [one.name for one in wanted if one.required and one.name not in inputs]:
        raise InputsRefused(f"the crew needs inputs that were not given: {', '.join(missing)}")
    return crew.kickoff(inputs=dict(inputs))


def option_for(found: Any) -> str | None:
    return next((option for option, mark in OPTIONS.items() if getattr(found, mark, False)), None)


def findings(project: Project, code: Code) -> Iterator[Found]:
    from windlass_child.crewai import asking, declarations
    from windlass_child.crewai_files import configs

    yield from configs.findings(code, declarations.known_members() if configs.crews(code) else {})
    yield from declarations.findings(project)
    yield from asking.findings(project, code)

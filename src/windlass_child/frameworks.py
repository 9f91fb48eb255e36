"""The frameworks that crews are written with. The module windlass_child.NAME.adapter adapts the framework NAME.

Modules outside of the adapters, and of the kinds of project that need a framework, use it only through its adapter.
"""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from importlib import import_module
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any, Protocol, cast

from windlass_child.process.error_text import ProjectFault, interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from importlib.machinery import ModuleSpec
    from pathlib import Path
    from types import ModuleType

    from windlass_child.process.report import Report
    from windlass_child.project_files.code import Code
    from windlass_child.project_files.found import Found
    from windlass_child.protocol.messages import Project, Run

FRAMEWORKS = ("crewai",)
"""The import names of the frameworks."""


class Adapter(Protocol):
    """The module that adapts a framework. Its own import does not import the framework.

    `OLDEST` is the oldest version that Windlass runs.
    `QUIET` are variables that switch off the telemetry of the framework. The crew's environment overrides them.
    `LASTING_THREADS` are the names of threads that its libraries start once for a process, and that hold nothing of a
    run.
    """

    OLDEST: tuple[int, ...]
    QUIET: Mapping[str, str]
    LASTING_THREADS: frozenset[str]

    def storage_variables(self, storage: Path) -> dict[str, str]:
        """Returns the variables with which the framework stores its files in a folder."""

    def too_old(self) -> str:
        """Returns the installed version if it is older than the oldest that Windlass runs, else "". Imports nothing."""

    def warm(self) -> None:
        """Imports and warms the framework in a zygote, and leaves no thread running."""

    def degraded(self) -> list[str]:
        """Returns the codes of what Windlass can't do with this release, after `warm`."""

    def stop_threads(self) -> None:
        """Stops the threads of the framework before a fork. It is called only if the framework is imported."""

    def restart_threads(self) -> None:
        """Starts the threads again that code of the project needs, in a zygote that imports the project's modules."""

    def prepare_child(self) -> None:
        """Sets in a child what the framework has fixed at its import in the zygote. It is called before each load."""

    def note_databases(self) -> None:
        """Notes the databases that the import of the project's modules has opened in the framework's storage. For each
        run `prepare_child` makes them in its own storage. It is called only if the framework is imported.
        """

    def snapshot(self) -> Callable[[], None]:
        """Notes the state of the framework that runs change, when the modules of the project have been imported.

        Returns what restores it after a run, so that the process can take another one. It raises NotReusable where this
        release can't be restored.
        """

    def watching(self, order: Run, report: Report, first_record: int | None) -> AbstractContextManager[Any]:
        """Guards, reports and journals all that code of the project runs with the framework, inside the `with` block.

        Its tasks get task records from the position `first_record` on, or none if that is None.
        """

    def without_kickoffs(self) -> AbstractContextManager[None]:
        """Refuses kickoffs inside the `with` block, with StartedAtImport. It is called only if it is imported."""

    def option_for(self, found: Any) -> str | None:
        """Returns the option of [tool.windlass] that names such an object of the framework, or None for others."""

    def runnable(self, found: Any) -> str | None:
        """Returns the name of the class of an object that can be run, and is no result, or None for others."""

    def how_to_run(self, name: str) -> str:
        """Returns the hint for an object that `runnable` has named."""

    def kicked_off(self, found: Any, inputs: dict[str, Any]) -> Any:
        """Runs a crew or a flow and returns its output. Returns None for other objects. Raises InputsRefused."""

    def findings(self, project: Project, code: Code) -> Iterator[Found]:
        """Yields the findings in the project's files that the framework reads. The project is not loaded for them."""


def adapter(framework: str) -> Adapter:
    return cast("Adapter", import_module(f"{__package__}.{framework}.adapter"))


def refuse_too_old(framework: str) -> None:
    """Raises ProjectFault for a release that is older than the oldest that Windlass runs."""
    one = adapter(framework)
    if old := one.too_old():
        oldest = ".".join(map(str, one.OLDEST))
        raise ProjectFault(
            f"{framework} {old} in {interpreter()} is too old: Windlass runs {framework} {oldest} and newer",
            "Require such a release, and install it in the project's environment.",
            "interpreter",
        )


def adapters() -> list[Adapter]:
    return [adapter(framework) for framework in FRAMEWORKS]


def imported() -> list[Adapter]:
    """Returns the adapters of the frameworks that this process has imported."""
    return [adapter(framework) for framework in FRAMEWORKS if framework in sys.modules]


@contextlib.contextmanager
def watching(order: Run, report: Report, first_record: int | None = None) -> Iterator[None]:
    """Guards, reports and journals all that runs inside the `with` block, for each framework from its import on."""
    with contextlib.ExitStack() as watched, contextlib.ExitStack() as awaited:
        for framework in FRAMEWORKS:
            begin = partial(enter, watched, framework, order, report, first_record)
            awaited.enter_context(once_imported(framework, begin))
        yield


@contextlib.contextmanager
def without_kickoffs() -> Iterator[None]:
    """Refuses kickoffs inside the `with` block, for each framework from its import on."""
    with contextlib.ExitStack() as guarded, contextlib.ExitStack() as awaited:
        for framework in FRAMEWORKS:
            awaited.enter_context(once_imported(framework, partial(guard, guarded, framework)))
        yield


def guard(guarded: contextlib.ExitStack, framework: str) -> None:
    guarded.enter_context(adapter(framework).without_kickoffs())


def enter(watched: contextlib.ExitStack, framework: str, order: Run, report: Report, first_record: int | None) -> None:
    watched.enter_context(adapter(framework).watching(order, report, first_record))


@contextlib.contextmanager
def once_imported(name: str, act: Callable[[], None]) -> Iterator[None]:
    """Calls `act` at once if the module is imported already.

    Otherwise calls `act` right after code inside the `with` block imports the module, before that import returns.
    """
    if name in sys.modules:
        act()
        yield
        return
    finder = Awaiting(name, act)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class Awaiting(MetaPathFinder):
    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name = name
        self._act = act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((one for one in found if one is not None), None)
        if spec is not None and spec.loader is not None:
            # the loader is patched and not replaced, because other code may expect the module's original loader
            spec.loader.exec_module = followed(spec.loader.exec_module, self._act)  # type: ignore[assignment]  # of this one object
        return spec


def followed(execute: Callable[[ModuleType], None], act: Callable[[], None]) -> Callable[[ModuleType], None]:
    def execute_and_act(module: ModuleType) -> None:
        execute(module)
        act()

    return execute_and_act

"""What a zygote imports before it forks: nothing, or a framework, warm."""

from __future__ import annotations

import contextlib
import gc
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from windlass_crewside.faults import explain, install_command, one_line, text_of
from windlass_crewside.messages import Preload, Ready, Surroundings, Unready
from windlass_crewside.surroundings import QUIET, environment, flush_output, inhabit, replace_environment
from windlass_crewside.veil import Veil

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass_crewside.messages import Project

PRELOADS = {"crewai": "windlass_crewside.prewarm"}
"""Module of ours for each framework: its `warm()` imports and warms it, and leaves no thread behind."""

COMMON = ("windlass_crewside.frameworks.function", "asyncio", "concurrent.futures", "json", "logging", "tomllib")
"""What most projects import anyway."""


def load(framework: str | None, order: Preload | None = None) -> Ready | Unready:
    """Imports what was asked for, and takes it from the garbage collector, which would write to what children share.

    With an order the project's own modules too, in an environment that stays.
    """
    for module in COMMON:
        import_module(module)
    if order is not None:
        inhabit(Surroundings(order.environment, str(Path.cwd())))
    answer = warmed(framework) if framework else Ready(sys.version.split()[0], None, None)
    if order is not None and isinstance(answer, Ready):
        answer = with_project(order.project, Veil(order.environment)) or answer
    flush_output()
    gc.collect()
    gc.freeze()
    return answer


def warmed(framework: str) -> Ready | Unready:
    if framework not in PRELOADS:
        return Unready(f"there is nothing to preload for {framework!r}; known are: {', '.join(PRELOADS)}.")
    try:
        with environment_for_imports():
            import_module(PRELOADS[framework]).warm()
    except ModuleNotFoundError as error:
        return not_installed(framework, error.name)
    except Exception as error:  # noqa: BLE001 - the framework's own code: whatever it raises, no crew can run here
        words = one_line(f"{type(error).__name__}: {text_of(error)}")
        return Unready(f"{framework} can't be imported by {sys.executable}: {words}")
    return Ready(sys.version.split()[0], framework, version(framework))


def with_project(project: Project, veil: Veil) -> Unready | None:
    """Imports its modules; nothing is built before there is a child to build it in. Nothing passes the veil unseen."""
    from windlass_crewside.frameworks.importing import entry_module

    try:
        entry_module(project)
    except BaseException as error:  # noqa: BLE001 - code of the project: whatever it raises is why it can't be served
        fault = explain(error, "load", project.root)
        return Unready(veil.text(f"{fault.message} {fault.hint}".strip()))
    for framework, module in PRELOADS.items():
        if framework in sys.modules:
            import_module(module).stop_bus_threads()
    return None


def not_installed(framework: str, missing: str | None) -> Unready:
    if missing is None or missing.partition(".")[0] == framework:
        message = f"{framework} is not installed in {sys.executable}."
        return Unready(f"{message} Install it: {install_command(framework)}", framework)
    message = f"{framework} can't be imported by {sys.executable}: it needs {missing}, which is missing."
    return Unready(f"{message} Install it again: {install_command(framework)}", missing)


@contextlib.contextmanager
def environment_for_imports() -> Iterator[None]:
    """Telemetry is decided at import. crewai also reads a .env file near the interpreter: not into all children."""
    before, here = environment(), str(Path.cwd())
    replace_environment(
        {**before, **QUIET, "PYTHON_DOTENV_DISABLED": "true", "CREWAI_STORAGE_DIR": here, "TMPDIR": here}
    )
    try:
        yield
    finally:
        replace_environment(before)

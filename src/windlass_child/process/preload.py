"""Imports and warms the framework of a zygote before its forks, and on request the project's modules."""

# See docs/decisions/child.md#signatures-of-built-in-classes-are-read-before-the-fork

from __future__ import annotations

import builtins
import contextlib
import gc
import inspect
import os
import sys
import threading
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass_child import frameworks, kinds, replacements
from windlass_child.masking.redaction import Redaction
from windlass_child.process import imported_paths, own_package
from windlass_child.process.error_text import (
    EXECUTABLE,
    ProjectFault,
    StartedAtImport,
    explain,
    interpreter,
    one_line,
    sentence,
    text_of,
)
from windlass_child.process.library_logs import ignore_accidental_setup
from windlass_child.process.output import flush_output
from windlass_child.process.process_env import apply, environment, quiet, replace_environment, storage_variables
from windlass_child.protocol.messages import Preload, ProcessEnvironment, Ready, Unready
from windlass_child.protocol.working_folder import PACKAGE, STORAGE, TEMPORARY, fill
from windlass_child.replacements import replace_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass_child.protocol.messages import Project

COMMON = ("asyncio", "concurrent.futures", "json", "logging")
"""Modules that most projects import."""
RARELY = (3000, 10, 10)
"""The thresholds of the garbage collector during imports. With the default ones it takes a tenth of the import time.
Without any collection, garbage is spread over the memory, and each child copies 2 MB more.
"""
LONGEST_NAMES = 200
"""Characters."""


def load(framework: str | None, order: Preload | None = None) -> Ready | Unready:
    """Imports the framework, and freezes its objects for the garbage collector, which would write to pages that
    children share.

    With `order` it imports the project's own modules too, in an environment that stays.
    """
    ignore_accidental_setup()
    thresholds = gc.get_threshold()
    gc.set_threshold(*RARELY)
    for module in COMMON:
        import_module(module)
    kinds.import_those_without_framework()
    if order is not None:
        apply(ProcessEnvironment(order.environment, str(Path.cwd().parent)))
    answer = warmed(framework) if framework else Ready(sys.version.split()[0], None, None)
    gc.set_threshold(*thresholds)
    if order is not None and isinstance(answer, Ready):
        answer = with_project(order.project, Redaction(order.environment, order.secrets)) or replace(
            answer, threads=own_threads()
        )
    keep_signatures()
    imported_paths.find(str(Path.cwd().parent))
    os.chdir("..")  # the server removes the working folder, which all children would share
    flush_output()
    gc.collect()
    gc.freeze()
    return answer


def keep_signatures() -> None:
    """Reads the signatures of the built-in classes once. pydantic asks for that of `list` when it builds a class, and
    for each one `inspect` copies `sys.modules`. That writes to every module, so that each child would copy 6 MB.
    """
    if not hasattr(inspect, "_signature_fromstr"):
        return
    kept = {}
    for one in vars(builtins).values():
        if isinstance(one, type):
            with contextlib.suppress(ValueError):  # it has none
                kept[one] = inspect.signature(one)

    def remembering(read: Callable[..., Any]) -> Callable[..., Any]:
        def signature(cls: type, obj: object, *rest: Any, **named: Any) -> Any:
            if cls is inspect.Signature and isinstance(obj, type) and obj in kept:
                return kept[obj]
            return read(cls, obj, *rest, **named)

        return signature

    replace_name("inspect:_signature_fromstr", remembering)


def warmed(framework: str) -> Ready | Unready:
    if framework not in frameworks.FRAMEWORKS:
        return Unready(f"there is nothing to preload for {framework!r}; known are: {', '.join(frameworks.FRAMEWORKS)}.")
    try:
        frameworks.refuse_too_old(framework)
        with environment_for_imports():
            frameworks.adapter(framework).warm()
    except ProjectFault as fault:
        return Unready(f"{sentence(fault.message)} {fault.hint}")
    except ModuleNotFoundError as error:
        return not_installed(framework, error)
    except Exception as error:  # noqa: BLE001 - code of the framework may raise anything; no crew can run here then
        words = one_line(f"{type(error).__name__}: {text_of(error)}")
        return Unready(f"{framework} can't be imported by {interpreter()}: {words}")
    degraded = frameworks.adapter(framework).degraded()
    return Ready(sys.version.split()[0], framework, version(framework), degraded=degraded, fault=replacements.Given.up)


def with_project(project: Project, redaction: Redaction) -> Unready | None:
    """Imports the modules of the project. A crew is built only in a child. Errors of the project are redacted."""
    from windlass_child.kinds.importing import entry_module

    try:
        fill(project.root, str(Path.cwd()))
        # its modules may read its metadata; children have folders of their own
        own_package.variables(project.root, str(Path.cwd().parent / PACKAGE), environment())
        sys.executable = EXECUTABLE
        for adapter in frameworks.imported():
            adapter.restart_threads()
        with contextlib.suppress(StartedAtImport):  # each child raises it again
            entry_module(project)
        for adapter in frameworks.imported():
            adapter.stop_threads()
            adapter.note_databases()
    except BaseException as error:  # noqa: BLE001 - code of the project may raise anything; the error is the answer
        fault = explain(error, "load", project.root, redaction.text)
        return Unready(f"{fault.message} {fault.hint}".strip())
    return None


def own_threads() -> str:
    """Returns the names of the threads beside the main one."""
    names = (thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
    return ", ".join(sorted(names))[:LONGEST_NAMES]


def not_installed(framework: str, error: ModuleNotFoundError) -> Unready:
    missing = error.name or ""
    if missing == framework:
        return Unready(f"{framework} is not installed in {interpreter()}.", framework)
    if not missing or missing.startswith(f"{framework}."):  # a part of the framework itself, whose files are damaged
        return Unready(f"{framework} can't be imported by {interpreter()}: {text_of(error)}")
    return Unready(f"{framework} can't be imported by {interpreter()}: it needs {missing}, which is missing.", missing)


@contextlib.contextmanager
def environment_for_imports() -> Iterator[None]:
    """Sets the environment for the import of a framework inside the block.

    Frameworks read their telemetry settings at import, and may read a .env file near the interpreter, which must not
    reach all children.
    """
    before, folder = environment(), Path.cwd().parent
    own = {**storage_variables(folder / STORAGE), "TMPDIR": str(folder / TEMPORARY)}
    replace_environment({**before, **quiet(), **own, "PYTHON_DOTENV_DISABLED": "true"})
    try:
        yield
    finally:
        replace_environment(before)

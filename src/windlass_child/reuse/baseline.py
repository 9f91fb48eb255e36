"""Resets a process between two runs to its state just after the project's modules were imported.

What is reset: the environment, the arguments, `sys.path`, context variables, signal handlers, and what the framework
registers for all crews of a process. The folder of each run has the same path, so that the paths that modules keep are
right for each run.
"""

# See docs/decisions/child.md#a-reused-child-has-a-new-folder-at-the-same-path

from __future__ import annotations

import contextvars
import gc
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from windlass_child import frameworks
from windlass_child.process import processes
from windlass_child.process.process_env import environment
from windlass_child.protocol.working_folder import has_files
from windlass_child.reuse.leftovers import close_idle_connections, files, name_of_thread, path_of, threads, wakes

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass_child.protocol.messages import Run

SECONDS = 0.2
"""The longest wait for threads that are about to end, and for descriptors that are about to be closed."""
PAUSE = 0.005
LONGEST_LIST = 300
"""Characters of a list of names in a reason."""
IMPORTING = "<frozen importlib._bootstrap>"
FOLDER = "/"
"""The working folder of an idle process: that of its last run is removed."""

MADE_AT_IMPORT = "{} is an object that its module makes, and runs would share it: name a class or a function"
STARTED_AT_IMPORT = "its module starts a crew or flow while it is imported"


class NotReusable(Exception):  # noqa: N818 - describes the process
    """The process can't take another run. The text continues the sentence "it was not kept, because"."""


class Baseline:
    """The state of this process when the modules of its project have been imported by its first run, `order`."""

    def __init__(self, order: Run) -> None:
        self._folder, self._work = order.process_environment.folder, order.process_environment.working_folder
        self._root = order.project.root
        self._applied = environment()
        self._refused = ""
        self._undo: list[Callable[[], None]] | None = None
        self._context = contextvars.copy_context()

    def imported(self) -> None:
        """Takes the state. Only the first call counts."""
        if self._undo is not None:
            return
        now = environment()
        self._set = {name: value for name, value in now.items() if self._applied.get(name) != value}
        self._removed = self._applied.keys() - now.keys()
        note_variables_of_imports(self._set)
        self._context = contextvars.copy_context()
        self._path = [*sys.path]
        self._threads = threads()
        # one that the import has opened in the folder of the first run counts as left by the run
        self._files = {
            number: one for number, one in files().items() if not path_of(number).startswith(f"{self._folder}/")
        }
        self._frameworks = frameworks.imported()
        for adapter in self._frameworks:
            adapter.note_databases()
        self._undo = [signal_handlers(), *(adapter.snapshot() for adapter in self._frameworks)]
        if has_files(self._root, self._work):
            self.refuse("the import of its modules writes files in the working folder: write them in a function")

    def refuse(self, reason: str) -> None:
        """Makes `restore` raise NotReusable with this reason."""
        self._refused = self._refused or reason

    def context(self) -> contextvars.Context:
        """Returns a copy of the context variables, in which a run changes only its own."""
        return self._context.copy()

    def put_variables(self) -> None:
        """Changes the environment as the import of the project's modules has changed it."""
        for name in self._removed:
            os.environ.pop(name, None)  # noqa: TID251 - this process's own, which is the crew's
        os.environ.update(self._set)  # noqa: TID251 - as above

    def restore(self) -> None:
        """Resets the process. Raises NotReusable if the run has left anything that can't be reset."""
        if self._undo is None:
            self.refuse("its modules were not imported")
        if self._refused:
            raise NotReusable(self._refused)
        if frameworks.imported() != self._frameworks:
            raise NotReusable("the run imported the framework: import it at the top of the module")
        for undo in self._undo or ():
            undo()
        sys.path[:] = self._path
        os.chdir(FOLDER)
        if left := processes.children(os.getpid()):
            raise NotReusable(f"the run left {len(left)} processes that it had started")
        check(self._left_threads, "threads")
        check(self._left_files, "files or connections open")

    def _left_threads(self) -> list[str]:
        lasting = {name for adapter in self._frameworks for name in adapter.LASTING_THREADS}
        return sorted({name_of_thread(one) for one in threads() - self._threads} - lasting)

    def _left_files(self) -> list[str]:
        found = files()
        left = [one for one, identity in found.items() if self._files.get(one) != identity and not wakes(one)]
        closed = [f"{number} was closed" for number in self._files.keys() - found.keys()]
        return closed + [path for path in map(path_of, left) if path]


current: Baseline | None = None
"""The baseline of this process, if it is to be used for several runs."""


def begin(order: Run) -> Baseline:
    """Makes this process one whose kind calls `imported`."""
    global current  # noqa: PLW0603 - a process has one
    current = Baseline(order)
    return current


def imported() -> None:
    """The kinds call this when they have imported the project's modules, and before they build anything of them."""
    if current is not None:
        current.imported()


def refuse(reason: str) -> None:
    """The kinds call this for a project whose runs would share objects."""
    if current is not None:
        current.refuse(reason)


def check(find: Callable[[], list[str]], what: str) -> None:
    """Raises NotReusable if the run has left any. They may be about to end, or await the garbage collector."""
    if not find():
        return
    gc.collect()
    close_idle_connections()
    deadline = time.monotonic() + SECONDS
    while left := find():
        if time.monotonic() > deadline:
            text = ", ".join(sorted(set(left)))
            raise NotReusable(f"the run left {what}: {text if len(text) <= LONGEST_LIST else text[:LONGEST_LIST]}")
        time.sleep(PAUSE)


def note_variables_of_imports(found: dict[str, str]) -> None:
    """Notes in `found` the variables that a module sets when a run imports it: later runs don't import it again."""
    put = os.putenv

    def noting(name: Any, value: Any) -> None:
        put(name, value)
        frame = sys._getframe(1)  # noqa: SLF001 - the only way to see whether a module is being imported
        while (after := frame.f_back) is not None:
            if frame.f_code.co_filename == IMPORTING:
                found[os.fsdecode(name)] = os.fsdecode(value)
                return
            frame = after

    os.putenv = noting


def signal_handlers() -> Callable[[], None]:
    """Keeps the handlers of signals, and ends timers."""
    of_signal = sys.modules["_signal"].getsignal  # signal.getsignal also converts handlers to enums
    kept = {number: of_signal(number) for number in signal.valid_signals()}

    def undo() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in kept.items():
            if handler is not None and of_signal(number) is not handler:
                signal.signal(number, handler)

    return undo

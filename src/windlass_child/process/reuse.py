"""Prepares a child for another run of its crew: resets what the last run has changed, and finds what it has left.

The state to which the process is reset is that just after the project's modules were imported: they are not imported
again. docs/concepts/processes.md describes what runs share.
"""

# See docs/decisions/child.md#a-reused-child-is-reset-or-ended

from __future__ import annotations

import asyncio
import builtins
import contextlib
import contextvars
import gc
import locale
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass_child import frameworks
from windlass_child.process import imported_paths, left_open, places, processes
from windlass_child.process.process_env import environment, native_variables, replace_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SECONDS = 0.2
"""The longest wait for threads that are about to end, and for descriptors that are about to be closed."""
PAUSE = 0.005
LONGEST_LIST = 300
"""Characters of a list of names in a reason."""
IMPORTING = "<frozen importlib._bootstrap>"
FOLDER = "/"
"""The working folder of an idle process: that of its last run is not its own any more."""

PLACES = "the import of its modules sets {} to a place in the folder of the run"
MADE_AT_IMPORT = "{} is an object that its module makes, and runs would share it: name a class or a function"
STARTED_AT_IMPORT = "its module starts a crew or flow while it is imported"


class NotReusable(Exception):  # noqa: N818 - describes the process
    """The process can't take another run. The text continues the sentence "it was not kept, because"."""


class Baseline:
    """The state of this process when the modules of its project have been imported, before a run.

    `applied` is the environment that the run began with, `folder` the folder of the run (ProcessEnvironment), `root`
    the project's.
    """

    def __init__(self, applied: Mapping[str, str], folder: str, root: str) -> None:
        self._applied = dict(applied)
        self._folder = self._last_folder = folder
        self._root = root
        self._refused = self._places = ""
        self._undo: list[Callable[[], None]] | None = None
        self._context = contextvars.copy_context()
        self._lasts = self._has_lasting = False

    def imported(self) -> None:
        """Takes the state. Only the first call counts."""
        if self._undo is not None:
            return
        self._context = contextvars.copy_context()
        self._frameworks = frameworks.imported()
        now = environment()
        self._set = {name: value for name, value in now.items() if self._applied.get(name) != value}
        self._removed = self._applied.keys() - now.keys()
        self._threads = threads()
        self._files = files()
        self._limits = limits()
        self._undo = [
            *(adapter.snapshot() for adapter in self._frameworks),
            *map(attributes, (sys, threading, builtins, warnings, logging)),
            *(lists(owner, name) for owner, name in LISTS),
            filters_of_warnings(),
            logging_state(),
            handlers(),
            settings(),
        ]
        self._undo_native = native_variables()
        note_variables_of_imports(self._set)
        if paths := [name for name, value in self._set.items() if self._folder in value]:
            self.refuse(PLACES.format(listed(paths)))
        imported_paths.find(self._folder, lambda one: places.is_of_project(one, self._folder, Path(self._root)))
        moved = [one for adapter in self._frameworks for one in adapter.moved()]
        kept = places.kept(self._folder, self._root, moved)
        if variables := [name for name in kept if name not in imported_paths.variables()]:
            self._places = f"{PLACES.format(listed(variables))}: make it in a function"
        opened = [path for path in map(path_of, self._files) if path.startswith(f"{self._folder}/")]
        if opened:
            self.refuse(f"the import of its modules opens {listed([Path(path).name for path in opened])}")

    def refuse(self, reason: str) -> None:
        """Makes `restore` raise NotReusable with this reason."""
        self._refused = self._refused or reason

    def context(self) -> contextvars.Context:
        """Returns a copy of the context variables, in which a run changes only its own."""
        return self._context.copy()

    def put_folder(self, folder: str) -> None:
        """Sets the folder of the next run in `sys.path`."""
        self._last_folder = folder
        sys.path[:] = [moved(place, self._folder, folder) for place in sys.path]

    def after_imports(self, given: Mapping[str, str]) -> dict[str, str]:
        """Returns an environment as the import of the project's modules changes it."""
        return {name: value for name, value in given.items() if name not in self._removed} | self._set

    def restore(self) -> None:
        """Resets the process. Raises NotReusable if the run has left anything that can't be reset."""
        if self._undo is None:
            self.refuse("its modules were not imported")
        if reason := self._refused or self._places:
            raise NotReusable(reason)
        if frameworks.imported() != self._frameworks:
            raise NotReusable("the run imported the framework: import it at the top of the module")
        for undo in self._undo or ():
            undo()
        os.chdir(FOLDER)
        if any(folder in value for value in self._set.values() for folder in (self._folder, self._last_folder)):
            raise NotReusable("a module that the run imported sets a variable to a place in the folder of the run")
        if limits() != self._limits:
            raise NotReusable("the run changed a limit or the priority of its process")
        if processes.children(os.getpid()):
            left_open.end_helpers(self._files.keys())
        if left := processes.children(os.getpid()):
            raise NotReusable(f"the run left {len(left)} processes that it had started")
        self._check(self._left_threads, "threads")
        self._check(self._left_files, "files or connections open")
        # last: the code of threads and finalizers may run until here, and the next run sets only what differs
        replace_environment(self.after_imports(self._applied))
        self._undo_native()

    def _check(self, find: Callable[[], list[str]], what: str) -> None:
        """Raises NotReusable if the run has left any. They may be about to end, or await the garbage collector."""
        if not find():
            return
        gc.collect()
        left_open.close_idle_connections()
        deadline = time.monotonic() + SECONDS
        while left := find():
            if time.monotonic() > deadline:
                raise NotReusable(f"the run left {what}: {listed(left)}")
            time.sleep(PAUSE)

    def _left_threads(self) -> list[str]:
        left = {one: name_of_thread(one) for one in threads() - self._threads}
        lasting = {name for adapter in frameworks.imported() for name in adapter.LASTING_THREADS}
        self._lasts = self._lasts or not lasting.isdisjoint(left.values())
        return sorted(name for name in left.values() if name not in lasting)

    def _left_files(self) -> list[str]:
        found = files()
        if self._lasts and not self._has_lasting:
            self._has_lasting = True
            self._files |= {number: of for number, of in found.items() if number not in self._files and wakes(number)}
        left = [number for number, identity in found.items() if self._files.get(number) != identity]
        closed = [f"{number} was closed" for number in self._files.keys() - found.keys()]
        return closed + [path for path in map(path_of, left) if path]


current: Baseline | None = None
"""The baseline of this process, if it is to be used for several runs."""


def begin(applied: Mapping[str, str], folder: str, root: str) -> Baseline:
    """Makes this process one whose kind calls `imported`."""
    global current  # noqa: PLW0603 - a process has one
    current = Baseline(applied, folder, root)
    return current


def imported() -> None:
    """The kinds call this when they have imported the project's modules, and before they build anything of them."""
    if current is not None:
        current.imported()


def refuse(reason: str) -> None:
    """The kinds call this for a project whose runs would share objects."""
    if current is not None:
        current.refuse(reason)


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


def moved(place: str, folder: str, to: str) -> str:
    return to + place.removeprefix(folder) if f"{place}/".startswith(f"{folder}/") else place


LISTS = ((sys, "path"), (sys, "meta_path"), (sys, "path_hooks"))


def attributes(module: Any) -> Callable[[], None]:
    """Keeps what the names of a module stand for: hooks, streams and functions that code may replace."""
    kept = {name: value for name, value in vars(module).items() if not isinstance(value, (list, dict, set))}
    kept.pop("_", None)  # which a console sets

    def undo() -> None:
        now = vars(module)
        for name, value in kept.items():
            if now.get(name, undo) is not value:
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(module, name, value)

    return undo


def lists(owner: Any, name: str) -> Callable[[], None]:
    kept, values = getattr(owner, name), list(getattr(owner, name))

    def undo() -> None:
        if kept != values or getattr(owner, name) is not kept:
            kept[:] = values
            setattr(owner, name, kept)

    return undo


def filters_of_warnings() -> Callable[[], None]:
    values = list(warnings.filters)

    def undo() -> None:
        if warnings.filters != values:
            warnings.resetwarnings()  # which also has the filters read again
            warnings.filters[:] = values  # type: ignore[index]  # a list, which typeshed has as a sequence

    return undo


def logging_state() -> Callable[[], None]:
    """Keeps handlers, filters and levels of the loggers. A logger that appears later loses its handlers."""
    kept = {one: (one.level, one.propagate, one.disabled, [*one.handlers], [*one.filters]) for one in loggers()}
    disabled = logging.root.manager.disable

    def undo() -> None:
        logging.disable(disabled)
        for one in loggers():
            known = kept.get(one)
            if known is None:
                one.handlers[:] = []
                continue
            level, one.propagate, one.disabled, one.handlers[:], one.filters[:] = known
            if one.level != level:
                one.setLevel(level)  # it clears the caches of the loggers

    return undo


def loggers() -> list[logging.Logger]:
    found = logging.root.manager.loggerDict.values()
    return [logging.root, *(one for one in found if isinstance(one, logging.Logger))]


def handlers() -> Callable[[], None]:
    """Keeps the handlers of signals, and ends timers."""
    of_signal = sys.modules["_signal"].getsignal  # signal.getsignal also converts handlers to enums
    kept = {number: of_signal(number) for number in signal.valid_signals()}

    def undo() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in kept.items():
            if handler is not None and of_signal(number) is not handler:
                signal.signal(number, handler)

    return undo


def settings() -> Callable[[], None]:
    """Keeps settings of the process and of the interpreter."""
    umask = os.umask(0o077)
    os.umask(umask)
    timeout, depth, switches = socket.getdefaulttimeout(), sys.getrecursionlimit(), sys.getswitchinterval()
    collects, thresholds, language = gc.isenabled(), gc.get_threshold(), locale.setlocale(locale.LC_ALL)
    policy = asyncio.get_event_loop_policy()
    own_policy = None if type(policy) is asyncio.DefaultEventLoopPolicy else policy

    def undo() -> None:
        os.umask(umask)
        socket.setdefaulttimeout(timeout)
        sys.setrecursionlimit(depth)
        sys.setswitchinterval(switches)
        sys.settrace(None)
        sys.setprofile(None)
        gc.set_threshold(*thresholds)
        if gc.isenabled() != collects:
            (gc.enable if collects else gc.disable)()
        if locale.setlocale(locale.LC_ALL) != language:
            locale.setlocale(locale.LC_ALL, language)
        asyncio.set_event_loop_policy(own_policy)  # a default policy is made again, without the loop of the last run

    return undo


def limits() -> list[Any]:
    names = sorted(name for name in vars(resource) if name.startswith("RLIMIT_"))
    found: list[Any] = [resource.getrlimit(getattr(resource, name)) for name in names]
    return [*found, os.getpriority(os.PRIO_PROCESS, 0)]


def threads() -> set[int]:
    """Returns the system's ids of the threads of this process, also of those that libraries started in C code."""
    try:
        return {int(name) for name in os.listdir("/proc/self/task")}  # noqa: PTH208 - read after each run
    except OSError:
        return {thread.native_id or 0 for thread in threading.enumerate()}


def files() -> dict[int, tuple[int, int]]:
    """Returns the open descriptors, each with the device and the number of its file."""
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - as above
            with contextlib.suppress(OSError):  # the one with which this folder was read
                status = os.fstat(int(name))
                found[int(name)] = status.st_dev, status.st_ino
    return found


def name_of_thread(thread: int) -> str:
    """Returns the name that Python has for the thread, or the system's for one that was started in C code."""
    for one in threading.enumerate():
        if one.native_id == thread:
            return one.name
    with contextlib.suppress(OSError):
        return Path(f"/proc/self/task/{thread}/comm").read_text().strip()
    return "a thread that has ended"


def wakes(descriptor: int) -> bool:
    """Returns whether event loops use the descriptor to wait and to wake each other: no file, and no connection to
    another process.
    """
    path = path_of(descriptor)
    if path.startswith("anon_inode:"):
        return True
    if not path.startswith("socket:"):
        return False
    with socket.socket(fileno=os.dup(descriptor)) as found, contextlib.suppress(OSError):
        return found.family == socket.AF_UNIX and not found.getsockname() and not found.getpeername()
    return False


def path_of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - may be no path: socket:[123]
    except OSError:
        return ""


def listed(names: list[str]) -> str:
    text = ", ".join(sorted(set(names)))
    return text if len(text) <= LONGEST_LIST else f"{text[:LONGEST_LIST]}..."

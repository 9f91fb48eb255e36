"""One cgroup (version 2) for each run: the kernel bounds memory, processes and CPU time of the run together.

If the server has no cgroup of its own that it may divide, `delegated` raises NotDelegated with the reason. The limits
are polled then (resource_monitor.py).
"""

# See docs/decisions/runner.md#each-run-has-a-cgroup-where-one-is-delegated

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from windlass import log
from windlass.runner.processes import Families, all_processes, process

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from windlass.kickoffs.limits import Limits
    from windlass.runner.processes import Process

NEEDED = frozenset({"memory", "pids"})
SERVER, RUN = "windlass-server-", "windlass-run-"
TASKS = 8
"""Tasks (processes and threads) for each process of a run's process_limit: pids.max counts threads too."""
WEIGHT_OF_SERVER, WEIGHT_OF_RUN = 1000, 100
REMOVAL_SECONDS = 2.0
"""How long a removal waits until the kernel has ended the processes of the cgroup."""
PAUSE = 0.01
SYSTEMD = Path("/run/systemd/system")
DELEGATED = ("user.delegate", "trusted.delegate")

MEMORY_OF_CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""The bound of a container's memory as the container sees it, with cgroups of version 2 and 1."""
NO_BOUND = 1 << 60
"""Version 1 shows a larger number of bytes where there is no bound."""

logger = log.logger(__name__)


class NotDelegated(Exception):  # noqa: N818 - describes the server
    """The server has no cgroup that it may divide. The text gives the reason."""


class OutOfMemory(NamedTuple):
    """Counts kills: `kills` is how often the kernel killed a process of the run because memory ran out. With `own` the
    run reached its own limit, otherwise that of the machine or of the server's container.
    """

    kills: int
    own: bool


def delegated(
    own: Path = Path("/proc/self/cgroup"), mounts: Path = Path("/proc/self/mountinfo"), systemd: Path = SYSTEMD
) -> Path:
    """Returns the folder of this process's cgroup, where it may make cgroups for runs. Changes nothing.

    `systemd` is a folder that exists if systemd manages the cgroups. Raises NotDelegated.
    """
    folder = _own_folder(own, mounts)
    if folder.name == f"{SERVER}{os.getpid()}":  # this process has divided the parent folder before
        folder = folder.parent
    missing = NEEDED - set(_read(folder / "cgroup.controllers").split())
    if missing:
        raise NotDelegated(f"{folder} has no {' and no '.join(sorted(missing))} controller")
    if not all(os.access(folder / name, os.W_OK) for name in ("", "cgroup.procs", "cgroup.subtree_control")):
        raise NotDelegated(f"{folder} is not writable for this user")
    if systemd.exists() and not any(_has_attribute(folder, name) for name in DELEGATED):
        raise NotDelegated(f"systemd has not delegated {folder}: set Delegate=yes in the server's unit")
    strangers = set(_processes(folder)) - _relatives()
    if strangers:
        raise NotDelegated(f"other programs are in {folder} (process {min(strangers)}): give the server its own")
    return folder


def memory_of_container(bounds: Iterable[Path] = MEMORY_OF_CONTAINER) -> int | None:
    """Returns the bytes that all processes of this container may use together, None without such a bound."""
    found = [int(text) for file in bounds if (text := _read(file).strip()).isdecimal()]
    return min((one for one in found if one < NO_BOUND), default=None)


def _own_folder(own: Path, mounts: Path) -> Path:
    path = re.search(r"^0::(/.*)$", _read(own), re.MULTILINE)
    for line in _read(mounts).splitlines():
        before, _, after = line.partition(" - ")
        if path and after.startswith("cgroup2 "):
            root, place = before.split()[3:5]
            return Path(place) / os.path.relpath(path[1], root)
    raise NotDelegated("there is no cgroup version 2 on this machine")


def _relatives() -> set[int]:
    """Returns this process, those above it and those below it."""
    found = all_processes()
    relatives = {one.pid for one in Families(found).of(os.getpid())}
    above = process(os.getpid())
    while above is not None:
        relatives.add(above.pid)
        above = process(above.parent)
    return relatives


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The cgroup of one run."""

    folder: Path

    def take(self, one: Process) -> bool:
        """Moves a process into the cgroup. Processes that it starts from now on are in the cgroup too.

        Returns False when the move is not possible. A process that has ended is not moved: a zygote may name a process
        id that another program gets next, and `remove` kills all processes in the cgroup.
        """
        now = process(one.pid)
        if now is None or now.ended or now.started != one.started:
            return False
        try:
            _write(self.folder / "cgroup.procs", str(one.pid))
        except ProcessLookupError:
            return False
        except OSError as error:
            logger.event("cgroup.failed", folder=self.folder, why=error.strerror)
            return False
        return True

    def outside(self, family: list[Process]) -> list[Process]:
        """Returns the processes that are not in the cgroup yet. A run may have started them before `take`."""
        inside = set(_processes(self.folder))
        return [one for one in family if one.pid not in inside]

    def out_of_memory(self) -> OutOfMemory | None:
        with contextlib.suppress(OSError, ValueError):
            lines = (line.split() for line in _read(self.folder / "memory.events").splitlines())
            events = {name: int(count) for name, count in lines}
            if events.get("oom_kill"):
                return OutOfMemory(events["oom_kill"], own=bool(events.get("oom")))
        return None

    def remove(self) -> None:
        """Kills all processes in the cgroup, also those that are forked meanwhile, and removes it. It may block for
        REMOVAL_SECONDS.
        """
        with contextlib.suppress(OSError):
            _write(self.folder / "cgroup.kill", "1")
        deadline = time.monotonic() + REMOVAL_SECONDS
        while True:
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError as error:  # a process in it has not ended yet
                if time.monotonic() > deadline:
                    logger.event("cgroup.not_removed", folder=self.folder, why=error.strerror)
                    return
                time.sleep(PAUSE)
            else:
                return


def divided(folder: Path) -> Cgroups:
    """Divides the cgroup. Raises NotDelegated when the kernel refuses that."""
    try:
        return Cgroups(folder)
    except OSError as error:
        raise NotDelegated(f"{folder} can't be divided: {error.strerror}") from None


class Cgroups:
    """The cgroups of one server's runs, below `folder` (`delegated`).

    The server moves into a cgroup of its own first: a cgroup that has processes can't have controllers for the cgroups
    below it.
    """

    def __init__(self, folder: Path, controllers: frozenset[str] = NEEDED | {"cpu"}) -> None:
        """Raises OSError when the kernel does not permit the division."""
        self.folder = folder
        self._mark = f"{os.getpid()}-"
        self._remove_stale()
        self.server = folder / f"{SERVER}{os.getpid()}"
        self.server.mkdir(exist_ok=True)
        for pid in _processes(folder):
            with contextlib.suppress(ProcessLookupError):
                _write(self.server / "cgroup.procs", str(pid))
        wanted = controllers & set(_read(folder / "cgroup.controllers").split())
        _write(folder / "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(wanted)))
        if "cpu" in wanted:
            _write(self.server / "cpu.weight", str(WEIGHT_OF_SERVER))
        self._controllers = wanted

    def open(self, name: str, limits: Limits) -> Cgroup | None:
        """Makes the cgroup of a run, with its limits. Returns None on failure: the run's limits are polled then."""
        made = Cgroup(self.folder / f"{RUN}{self._mark}{name}")
        try:
            made.folder.mkdir()
            for file, value in self._settings(limits):
                _write(made.folder / file, value)
        except OSError as error:
            logger.event("cgroup.failed", folder=made.folder, why=error.strerror)
            made.remove()
            return None
        return made

    def take_out(self, one: Process) -> bool:
        """Moves a process out of the cgroup of its run, which is removed then. Returns False when that is not
        possible.
        """
        return Cgroup(self.server).take(one)

    def _settings(self, limits: Limits) -> Iterator[tuple[str, str]]:
        if "memory" in self._controllers:
            yield "memory.oom.group", "1"
            if limits.memory_limit is not None:
                yield "memory.max", str(limits.memory_limit)
                if (self.server / "memory.swap.max").exists():  # the file is missing if the kernel does not count swap
                    yield "memory.swap.max", "0"
        if "pids" in self._controllers and limits.process_limit is not None:
            yield "pids.max", str(limits.process_limit * TASKS)
        if "cpu" in self._controllers:
            yield "cpu.weight", str(WEIGHT_OF_RUN)

    def _remove_stale(self) -> None:
        """Removes the cgroups of servers that were killed."""
        for left in self.folder.glob("windlass-*"):
            found = re.fullmatch(rf"(?:{SERVER}|{RUN})(\d+)(?:-.*)?", left.name)
            if found and process(int(found[1])) is None:
                Cgroup(left).remove()

    def close(self) -> None:
        """Removes the cgroups of runs that are left. The server's own cgroup goes with the server's end, or at the next
        start.
        """
        for left in self.folder.glob(f"{RUN}{self._mark}*"):
            Cgroup(left).remove()


def _processes(folder: Path) -> list[int]:
    return [int(line) for line in _read(folder / "cgroup.procs").split()]


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _write(file: Path, value: str) -> None:
    file.write_text(value)


def _has_attribute(folder: Path, name: str) -> bool:
    with contextlib.suppress(OSError, AttributeError):
        return os.getxattr(folder, name) == b"1"
    return False

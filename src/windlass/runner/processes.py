"""Reads processes from /proc of Linux, and kills them. On other systems no process is found."""

# See docs/decisions/runner.md#the-server-checks-each-reported-child

from __future__ import annotations

import os
import re
import signal
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from windlass_child.process.processes import status_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PROC = Path("/proc")
PAGE = os.sysconf("SC_PAGE_SIZE")
PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
LARGEST_ROLLUP = 8192
END_SECONDS = 2.0
"""The longest wait for the end of killed processes."""
STOP_SECONDS = 2.0
"""The longest time in which processes are stopped that start others meanwhile."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process as /proc shows it. `started` is in clock ticks since the machine's start: `pid` and `started` together
    identify a process for good. `rss` is in bytes.
    """

    pid: int
    parent: int
    state: str
    threads: int
    started: int
    rss: int

    @property
    def ended(self) -> bool:
        return self.state in {"Z", "X"}


def process(pid: int) -> Process | None:
    fields = status_of(pid)
    if not fields:
        return None
    return Process(
        pid,
        parent=int(fields[1]),
        state=fields[0].decode(),
        threads=int(fields[17]),
        started=int(fields[19]),
        rss=int(fields[21]) * PAGE,
    )


def all_processes() -> list[Process]:
    try:
        with os.scandir(PROC) as entries:
            names = [entry.name for entry in entries]
    except FileNotFoundError:
        return []
    return [found for name in names if name.isdecimal() and (found := process(int(name)))]


class Families:
    """All processes at one moment, by their parents."""

    def __init__(self, processes: list[Process]) -> None:
        self._by_pid = {one.pid: one for one in processes}
        self._children: dict[int, list[Process]] = {}
        for one in processes:
            self._children.setdefault(one.parent, []).append(one)

    def of(self, pid: int, started: int | None = None) -> list[Process]:
        """Returns the process and all below it that have not ended. With `started`, returns no processes if another
        process has the number by now.
        """
        first = self._by_pid.get(pid)
        if first is None or started not in {None, first.started}:
            return []
        return [one for one in self._walk(first) if not one.ended]

    def _walk(self, first: Process) -> Iterator[Process]:
        waiting = [first]
        while waiting:
            one = waiting.pop()
            yield one
            waiting += self._children.get(one.pid, ())


class Memory(NamedTuple):
    """The resident memory of a process, and its share (PSS) of the memory, in bytes."""

    resident: int
    share: int


def proportional(pid: int, opened: int | None) -> int | None:
    """Returns the process's share of memory (PSS) in bytes, with shared pages divided among the processes that share
    them. Returns None when the share can't be read.

    `opened` is a descriptor of the process's smaps_rollup, or None: nobody else may open that file of a process that is
    not dumpable.
    """
    with suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_bytes() if opened is None else os.pread(opened, LARGEST_ROLLUP, 0)
        if found := PSS.search(text):
            return int(found[1]) * 1024
    return None


class ForeignProcess(Exception):  # noqa: N818 - describes the process
    """A zygote named a process that it did not start, or that runs as another user than the crews."""


def child_of(parent: int, pid: int, uid: int | None) -> Process:
    """Returns the child `pid` of the process `parent`. `uid` is the user that it must run as, None for any.

    The number is from a process that runs code of a crew, so it can be that of any process of the machine. Raises
    ForeignProcess when the process with this number is not such a child. Returns an ended process for a child that has
    ended already; no process of the machine is equal to it.
    """
    gone = Process(pid, parent, "X", threads=0, started=-1, rss=0)
    found = process(pid)
    if found is None:
        return gone
    if found.parent != parent:
        zygote = process(parent)
        if zygote is None or zygote.ended:  # the children of an ended process have another parent
            return gone
        raise ForeignProcess(f"process {pid} is a child of process {found.parent}")
    if uid is not None and (users := users_of(pid)) - {uid}:
        raise ForeignProcess(f"process {pid} runs as the user {', '.join(map(str, sorted(users)))}")
    return found


def stop_family(family: list[Process], uid: int | None) -> int:
    """Stops these processes and all that they start meanwhile, and returns the number of all. The first of the family
    is that which is above the others. A stopped process starts no other one. Gives up after STOP_SECONDS.
    """
    first, stopped = family[0], set[tuple[int, int]]()
    deadline = time.monotonic() + STOP_SECONDS
    with _before_all_others():
        while (new := [one for one in family if (one.pid, one.started) not in stopped]) and time.monotonic() < deadline:
            for one in new:
                signal_to(one, signal.SIGSTOP, uid)
            stopped |= {(one.pid, one.started) for one in new}
            family = Families(all_processes()).of(first.pid, first.started)
    return len(stopped)


@contextmanager
def _before_all_others() -> Iterator[None]:
    """Gives this thread, and the main thread, which may hold the interpreter's lock, precedence over all processes.

    A thousand processes that compute would leave them a thousandth of the processor. Has no effect without the right to
    do so, which root has.
    """
    threads = {threading.get_native_id(), threading.main_thread().native_id or 0}
    try:
        for thread in threads:
            os.sched_setscheduler(thread, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except (OSError, AttributeError):
        yield
        return
    try:
        yield
    finally:
        for thread in threads:
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def end_families(roots: list[tuple[Process, int | None]]) -> None:
    """Kills these processes, each with its user (signal_to), and all below them. Blocks until they have ended, for
    END_SECONDS at most.
    """
    families = Families(all_processes())
    for root, uid in roots:
        end_family(families.of(root.pid, root.started), uid)
    deadline = time.monotonic() + END_SECONDS
    for root, _ in roots:  # a process lives on for some milliseconds after its signal
        while lives(root) and time.monotonic() < deadline:
            time.sleep(0.002)


def lives(one: Process) -> bool:
    """Returns whether the process has not ended. A zombie has ended."""
    now = process(one.pid)
    return now is not None and now.started == one.started and not now.ended


def end_family(family: list[Process], uid: int | None) -> None:
    """Kills these processes, the last one first: a process whose parent has ended gets another parent."""
    for one in reversed(family):
        signal_to(one, signal.SIGKILL, uid)


def signal_to(one: Process, number: signal.Signals, uid: int | None) -> None:
    """Signals the process, unless another process has its number by now or it runs as another user than `uid`."""
    try:
        handle = os.pidfd_open(one.pid)
    except (OSError, AttributeError):  # it has ended, or this system is not Linux
        return
    try:
        now = process(one.pid)  # the process of the handle: while it lives, no other process has its number
        if now is not None and now.started == one.started and (uid is None or users_of(one.pid) == {uid}):
            signal.pidfd_send_signal(handle, number)
    except OSError:  # it has ended meanwhile, or it may not be reached
        return
    finally:
        os.close(handle)


def tasks_of_user(uid: int) -> int:
    """Returns the number of processes and threads of a user, as RLIMIT_NPROC counts them."""
    return sum(one.threads for one in all_processes() if _owner(one.pid) == uid)


def users_of(pid: int) -> set[int]:
    """Returns the real, effective, saved and file system user of a process; none for a process that has ended."""
    with suppress(OSError):
        found = re.search(rb"^Uid:\s+(.+)$", Path(f"/proc/{pid}/status").read_bytes(), re.MULTILINE)
        return set(map(int, found[1].split())) if found else set()
    return set()


def _owner(pid: int) -> int | None:
    with suppress(OSError, IndexError):
        found = re.search(rb"^Uid:\s+(\d+)", Path(f"/proc/{pid}/status").read_bytes(), re.MULTILINE)
        return int(found[1]) if found else None
    return None

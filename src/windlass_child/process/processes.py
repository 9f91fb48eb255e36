"""Finds and ends all processes below a process, also those that try to prevent it.

The processes are read from /proc of Linux. On other systems none are found, and only process groups are ended.
"""

# See docs/decisions/processes.md#children-adopt-what-their-processes-leave

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

END_SECONDS = 3.0
STOP_SECONDS = 2.0
PAUSE = 0.01
LONGEST_STATUS = 4096
CHUNK = 1 << 16


def children(pid: int) -> list[int]:
    """Returns the children of all threads of the process. Ended children that are not reaped yet are among them."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - read often, and quicker so
            with contextlib.suppress(OSError):
                found += map(int, read_whole(f"/proc/{pid}/task/{task}/children").split())
    return found


def read_whole(path: str) -> bytes:
    descriptor, found = os.open(path, os.O_RDONLY | os.O_CLOEXEC), b""
    try:
        while data := os.read(descriptor, CHUNK):
            found += data
        return found
    finally:
        os.close(descriptor)


def read_at_once(path: str) -> bytes:
    """Reads a short file of /proc with three system calls. It is done for all processes, several times a second."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, LONGEST_STATUS)
    finally:
        os.close(descriptor)


def below(roots: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields each process below these, with its parent."""
    waiting = list(roots)
    while waiting:
        parent = waiting.pop()
        for pid in children(parent):
            waiting.append(pid)
            yield pid, parent


def status_of(pid: int) -> list[bytes]:
    """Returns the fields of /proc/<pid>/stat after the name: state, parent, and so on. Empty for no such process."""
    try:
        status = read_at_once(f"/proc/{pid}/stat")
    except OSError:
        return []
    return status[status.rindex(b")") + 2 :].split()  # the name, in brackets, may contain any characters


def parent_of(pid: int) -> int | None:
    status = status_of(pid)
    return int(status[1]) if status else None


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def send_below(roots: Iterable[int], number: int) -> None:
    """Sends a signal to each process below the roots."""
    # All are listed before the first signal, and the last found get it first: a process whose parent has ended gets
    # another parent.
    for pid, parent in reversed(list(below(roots))):
        reach(pid, parent, number)


def reach(pid: int, parent: int, number: int) -> bool:
    """Sends a signal to the process only while it has this parent, because another process may have its number by now.
    Returns whether the signal was sent.
    """
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if parent_of(pid) != parent:
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def end(roots: list[int]) -> None:
    """Kills these processes with their groups and all processes below them. They must be children of this process that
    are not reaped yet: until then no other process can have their ids.

    A process that was started meanwhile may be left. The nearest subreaper adopts it, and must end it.
    """
    stop_all(roots)
    send_below(roots, signal.SIGKILL)
    for root in roots:
        send_to_group(root, signal.SIGKILL)


def stop_all(roots: list[int]) -> None:
    """Stops these processes and all below them, until none is left that could start another one. A fork bomb starts
    processes while it is killed; it can't while it is stopped. Gives up after STOP_SECONDS.
    """
    for root in roots:
        send(root, signal.SIGSTOP)
    stopped: set[tuple[int, int]] = set()
    deadline = time.monotonic() + STOP_SECONDS
    while (new := set(below(roots)) - stopped) and time.monotonic() < deadline:
        for pid, parent in new:
            reach(pid, parent, signal.SIGSTOP)
        stopped |= new


def send_to_group(pid: int, number: int) -> None:
    """Sends a signal to a child of this process, and to its group unless that is this process's own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        group = os.getpgid(pid)
        if group != os.getpgrp():
            os.killpg(group, number)
    send(pid, number)


def end_all_below() -> None:
    """Kills the processes below this one until none is left, for END_SECONDS at most."""
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline and (left := living(children(os.getpid()))):
        end(left)
        time.sleep(PAUSE)


def living(pids: Iterable[int]) -> list[int]:
    return [pid for pid in pids if not has_ended(pid)]


def was_killed(status: int) -> bool:
    """Returns whether SIGKILL ended the process with this wait status."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def has_ended(pid: int) -> bool:
    status = status_of(pid)
    return not status or status[0] in {b"Z", b"X"}

"""The processes below a process, and how to end them all, whatever they do against it.

Linux tells them in /proc. Elsewhere none are found, and only process groups are ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

END_SECONDS = 3.0
PAUSE = 0.01


def children(pid: int) -> list[int]:
    """Those of all its threads, ended ones that wait to be reaped among them."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - read often, and quicker so
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
    return found


def below(roots: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Each process below these, with its parent."""
    waiting = list(roots)
    while waiting:
        parent = waiting.pop()
        for pid in children(parent):
            waiting.append(pid)
            yield pid, parent


def parent_of(pid: int) -> int | None:
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(status[status.rindex(b")") + 2 :].split()[1])  # its name, in brackets, may hold anything


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def send_below(roots: Iterable[int], number: int) -> None:
    """To each process below the roots."""
    # all are known before the first is reached, and the last found come first: who has lost its parent has another
    for pid, parent in reversed(list(below(roots))):
        reach(pid, parent, number)


def reach(pid: int, parent: int, number: int) -> bool:
    """Not by its number alone, which another process may have by now: only while it has this parent."""
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
    """Kills these with their groups and all that is below them. They must be children of this process, not reaped yet:
    until then no one else can have their process ids.

    What was started meanwhile may be left: it comes to whoever adopts, to be ended again.
    """
    send_below(roots, signal.SIGKILL)
    for root in roots:
        send_to_group(root, signal.SIGKILL)


def send_to_group(pid: int, number: int) -> None:
    """To a child of this process and its group, where that is not our own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        group = os.getpgid(pid)
        if group != os.getpgrp():
            os.killpg(group, number)
    send(pid, number)


def end_all_below() -> None:
    """Kills whatever is below this process, until nothing is; it waits for no more than END_SECONDS."""
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline and (left := living(children(os.getpid()))):
        end(left)
        time.sleep(PAUSE)


def living(pids: Iterable[int]) -> list[int]:
    return [pid for pid in pids if not has_ended(pid)]


def was_killed(status: int) -> bool:
    """By SIGKILL, as this wait status has it."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def has_ended(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return True
    return status[status.rindex(b")") + 2 :][:1] in (b"Z", b"X")

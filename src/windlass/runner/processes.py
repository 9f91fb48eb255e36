"""What Linux tells of processes, in /proc. Elsewhere there is nothing to read, and nothing is found."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PROC = Path("/proc")
PAGE = os.sysconf("SC_PAGE_SIZE")
PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
LARGEST_ROLLUP = 8192


@dataclass(frozen=True, slots=True)
class Process:
    """`started` in clock ticks since the machine's start: with `pid` it names a process for good. `rss` in bytes."""

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
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # the name, in brackets, may hold anything
    fields = text[text.rindex(b")") + 2 :].split()
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

    def of(self, pid: int) -> list[Process]:
        """The process, and all below it, that have not ended."""
        first = self._by_pid.get(pid)
        return [one for one in self._walk(first) if not one.ended] if first else []

    def _walk(self, first: Process) -> Iterator[Process]:
        waiting = [first]
        while waiting:
            one = waiting.pop()
            yield one
            waiting += self._children.get(one.pid, ())


def proportional(pid: int, opened: int | None) -> int | None:
    """The process's share of memory (PSS) in bytes, shared pages divided among those that share them.

    From `opened`, a descriptor of its smaps_rollup, where there is one: who is not dumpable lets no one else open it.
    None when it can't be told.
    """
    with suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_bytes() if opened is None else os.pread(opened, LARGEST_ROLLUP, 0)
        if found := PSS.search(text):
            return int(found[1]) * 1024
    return None


def tasks_of_user(uid: int) -> int:
    """Processes and threads of a user, as RLIMIT_NPROC counts them."""
    return sum(one.threads for one in all_processes() if _owner(one.pid) == uid)


def _owner(pid: int) -> int | None:
    with suppress(OSError, IndexError):
        found = re.search(rb"^Uid:\s+(\d+)", Path(f"/proc/{pid}/status").read_bytes(), re.MULTILINE)
        return int(found[1]) if found else None
    return None

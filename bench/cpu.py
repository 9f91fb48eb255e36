"""The CPU time of a server's processes, from /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.machine import ZYGOTE, command_of

SERVER, POSTGRES, ZYGOTES, CHILDREN = "server", "PostgreSQL", "zygotes", "children"
POSTGRES_KEEPER = b"embedded_postgres/keeper.py"
TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """CPU times in seconds, in user mode and in the kernel. `ended` is that of children that the process has reaped."""

    parent: int
    own: float
    ended: float


def cpu_seconds(server: int) -> dict[str, float]:
    """Returns the CPU time that the processes of a server have used since their starts.

    The keys are SERVER, POSTGRES, ZYGOTES and CHILDREN. Each zygote counts with its own time alone. Its children
    count with theirs, those that have ended too. No kickoff may run meanwhile.
    """
    processes, used = all_times(), dict.fromkeys((SERVER, POSTGRES, ZYGOTES, CHILDREN), 0.0)
    below: dict[int, list[int]] = {}
    for pid, times in processes.items():
        below.setdefault(times.parent, []).append(pid)

    def add(pid: int, role: str) -> None:
        used[role] += processes[pid].own
        if role != SERVER:  # the server has reaped earlier zygotes, whose children ran before this measurement
            used[CHILDREN if role == ZYGOTES else role] += processes[pid].ended
        for child in below.get(pid, []):
            add(child, role_below(role, child))

    add(server, SERVER)
    return used


def role_below(role: str, pid: int) -> str:
    if role != SERVER:
        return CHILDREN if role == ZYGOTES else role
    command = command_of(pid)
    if ZYGOTE in command:
        return ZYGOTES
    return POSTGRES if POSTGRES_KEEPER in command else SERVER


def all_times() -> dict[int, ProcessTimes]:
    """Returns the times of every process of the machine, by process id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            members = (path / "stat").read_text().rpartition(")")[2].split()
            user, system, ended_user, ended_system = map(int, members[11:15])
            found[int(path.name)] = ProcessTimes(
                int(members[1]), (user + system) * TICK, (ended_user + ended_system) * TICK
            )
    return found

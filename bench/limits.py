"""What the limits of runs cost: a look at processes that only sleep, and a cgroup for each run where it can be had."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Figure, spread
from windlass.kickoffs.limits import Limits
from windlass.runner import Terminator
from windlass.runner.cgroups import NotDelegated, delegated, divided
from windlass.runner.processes import process
from windlass.runner.resource_monitor import WatchedRun, disks_measured, measured
from windlass.runner.scratch import DiskUse
from windlass.runner.shared_memory import Share, SharedMemory

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS = 8
LIMITS = Limits(memory_limit=2 << 30, process_limit=256, disk_limit=2 << 30, file_limit=100_000)


def limits(*, rounds: int) -> list[Figure]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sleeping = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(RUNS)]
        for process in sleeping:
            stack.enter_context(process)
            stack.callback(process.kill)
        shared, watched = SharedMemory(), []
        for process in sleeping:
            share = Share(os.geteuid(), disk=DiskUse.of(folder, LIMITS))
            shared.begin(share)
            stack.callback(shared.end, share)
            watched.append(WatchedRun(process.pid, LIMITS, Terminator(), disk=share.disk, share=share))
        look = milliseconds(lambda: measured(watched, shared), rounds)
        disks = milliseconds(lambda: disks_measured(watched), rounds)
        return [
            Figure(f"look at memory and processes of {RUNS} runs (4 a second), ms", spread(look, "", 2)),
            Figure(f"look at the folders of {RUNS} runs (2 a second), ms", spread(disks, "", 2)),
            Figure("a cgroup for a run: made, entered, removed, ms", cgroup_of_a_run(rounds)),
        ]


def cgroup_of_a_run(rounds: int) -> str:
    try:
        cgroups = divided(delegated())
    except NotDelegated:
        return "no cgroups here"

    def once() -> None:
        made = cgroups.open("bench", LIMITS)
        assert made is not None
        with subprocess.Popen(["sleep", "60"]) as started:
            one = process(started.pid)
            assert one is not None
            made.take(one)
            made.remove()

    return spread(milliseconds(once, rounds), "", 2)


def milliseconds(work: Callable[[], object], rounds: int) -> list[float]:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return taken

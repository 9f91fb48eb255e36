"""How many crews and functions end in a second: through a whole server, with Celery, and bare."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.celery_worker import celery_worker
from bench.cpu import CHILDREN, cpu_seconds
from bench.figures import Figure, spread
from bench.reuse import with_reuse
from bench.served import PROJECTS, Served, seconds, served
from bench.stage import ROOT, redis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

CREW = PROJECTS / "three_tasks"
FUNCTION = PROJECTS / "empty_function"
SLOTS = 2
SETTLING = 0.3
"""Seconds after the last end, in which a server removes what is left of its last kickoffs."""

REUSE = 50
WINDLASS, REUSED = "Windlass", f"with reuse = {REUSE}"
BARE = {"forked": "bare forked children", "looping": "bare crew.kickoff() in two warm processes"}
CELERY = {"default": "Celery, crewai's default storage", "own": "Celery, a storage folder for each process"}
CELERY_FUNCTION = "Celery, empty tasks in two processes"
GOALS = {BARE["forked"]: "at least 0.7"}
GOALS_REUSED = {BARE["looping"]: "at least 0.7", CELERY["default"]: "above 1"}
CPU_GOAL = "at most 20"
WITHOUT_REDIS = "needs redis-server"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One round of one way. `cpu` has the milliseconds of CPU time per kickoff, by process."""

    per_second: float
    cpu: Mapping[str, float] = field(default_factory=dict)


def crews(*, kickoffs: int, rounds: int) -> list[Figure]:
    """Three-task crews with a model that answers at once in-process, two at a time; in turns."""
    with ExitStack() as stack:
        ways: dict[str, Callable[[int], Measurement]] = {WINDLASS: stack.enter_context(server(CREW))}
        ways[REUSED] = stack.enter_context(reusing(CREW))
        ways |= {name: rate_of(stack.enter_context(bare(way))) for way, name in BARE.items()}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="windlass-bench-")))
        if address := stack.enter_context(redis(folder)):
            for way, name in CELERY.items():
                worker = celery_worker(address, folder / way, "three_tasks", crew=CREW, own_storage=way == "own")
                ways[name] = rate_of(stack.enter_context(worker))
        found = in_turns(ways, dict.fromkeys(ways, kickoffs), rounds)
    peers = [*BARE.values(), *CELERY.values()]
    return [
        *rates("three-task crews ended per second, two slots", found, peers),
        *cpu("CPU of a three-task kickoff, ms", found[WINDLASS], goal=CPU_GOAL),
        *cpu(f"CPU of a three-task kickoff {REUSED}, ms", found[REUSED], goal=CPU_GOAL),
    ]


def functions(*, kickoffs: int, rounds: int) -> list[Figure]:
    """Kickoffs of a function that does nothing, two at a time; in turns. Celery runs more, as it is faster."""
    with ExitStack() as stack:
        ways: dict[str, Callable[[int], Measurement]] = {WINDLASS: stack.enter_context(server(FUNCTION))}
        ways[REUSED] = stack.enter_context(reusing(FUNCTION))
        counts = {WINDLASS: kickoffs, REUSED: 2 * kickoffs}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="windlass-bench-")))
        if address := stack.enter_context(redis(folder)):
            worker = celery_worker(address, folder / "functions", "empty")
            ways[CELERY_FUNCTION] = rate_of(stack.enter_context(worker))
            counts[CELERY_FUNCTION] = 5 * kickoffs
        found = in_turns(ways, counts, rounds)
    return [
        *rates("empty functions ended per second, two slots", found, [CELERY_FUNCTION], goal="at least 150"),
        *cpu("CPU of an empty function, ms", found[WINDLASS]),
        *cpu(f"CPU of an empty function {REUSED}, ms", found[REUSED]),
    ]


def in_turns(
    ways: Mapping[str, Callable[[int], Measurement]], counts: Mapping[str, int], rounds: int
) -> dict[str, list[Measurement]]:
    found: dict[str, list[Measurement]] = {name: [] for name in ways}
    for measure in ways.values():
        measure(SLOTS * 4)
    for _ in range(rounds):
        for name, measure in ways.items():
            found[name].append(measure(counts[name]))
    return found


def rates(what: str, found: Mapping[str, list[Measurement]], peers: list[str], goal: str = "") -> list[Figure]:
    """The goal is that of the rate with reuse."""
    by_name = {name: [one.per_second for one in measured] for name, measured in found.items()}
    figures = [
        Figure(what, spread(by_name[WINDLASS], "", 1)),
        Figure(f"  {REUSED}", spread(by_name[REUSED], "", 1), goal),
    ]
    for name in peers:
        if name not in by_name:
            figures.append(Figure(f"  {name}", WITHOUT_REDIS))
            continue
        fresh, reused = (ratio(by_name[ours], by_name[name]) for ours in (WINDLASS, REUSED))
        figures.append(Figure(f"  {name}", spread(by_name[name], "", 1)))
        figures.append(Figure("  ratio to it", fresh, GOALS.get(name, "")))
        figures.append(Figure(f"  ratio to it {REUSED}", reused, GOALS_REUSED.get(name, "")))
    return figures


def ratio(ours: list[float], theirs: list[float]) -> str:
    return f"{statistics.median(ours) / statistics.median(theirs):.2f}"


def cpu(what: str, measured: list[Measurement], goal: str = "") -> list[Figure]:
    """The whole, each process, and all that is not the crew's own: the children do that."""
    whole = [sum(one.cpu.values()) for one in measured]
    besides = [sum(one.cpu.values()) - one.cpu[CHILDREN] for one in measured]
    roles = [Figure(f"  {role}", spread([one.cpu[role] for one in measured], "", 1)) for role in measured[0].cpu]
    return [
        Figure(what, spread(whole, "", 1)),
        *roles,
        Figure("  server, PostgreSQL and zygotes together", spread(besides, "", 1), goal),
    ]


@contextmanager
def server(project: Path) -> Iterator[Callable[[int], Measurement]]:
    with served(project, {"WINDLASS_SLOTS": str(SLOTS)}) as running:
        yield lambda count: through(running, count)


@contextmanager
def reusing(project: Path) -> Iterator[Callable[[int], Measurement]]:
    with with_reuse(project, REUSE) as copy, server(copy) as measure:
        yield measure


def through(server: Served, count: int) -> Measurement:
    """Ended per second, from the first start to the last end. One request brings all kickoffs before the first start.

    The CPU time is that from the request until all that is left of the kickoffs has been removed.
    """
    before = cpu_seconds(server.pid)
    ids = server.kickoffs(count)
    server.succeeded(ids[-1])  # the last one first: asking for each during the runs would take CPU time from them
    time.sleep(SETTLING)
    used = {role: 1000 * (after - before[role]) / count for role, after in cpu_seconds(server.pid).items()}
    statuses = [server.succeeded(kickoff_id) for kickoff_id in ids]
    first = min(seconds(status["started_at"]) for status in statuses)
    return Measurement(count / (max(seconds(status["finished_at"]) for status in statuses) - first), used)


def rate_of(measure: Callable[[int], float]) -> Callable[[int], Measurement]:
    return lambda count: Measurement(measure(count))


@contextmanager
def bare(way: str) -> Iterator[Callable[[int], float]]:
    """The same crew by bench.bare, a process of its own: how many end per second."""
    command = [sys.executable, "-m", "bench.bare", str(CREW), way]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        sent, told = process.stdin, process.stdout
        assert sent is not None
        assert told is not None

        def measure(count: int) -> float:
            sent.write(f"{count}\n")
            sent.flush()
            return count / float(json.loads(told.readline())["seconds"])

        json.loads(told.readline())
        yield measure
        sent.close()

"""How many crews end in a second: through a whole server, and bare."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from bench.figures import Figure, spread
from bench.served import PROJECTS, Served, seconds, served
from bench.stage import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CREW = PROJECTS / "three_tasks"
SLOTS = 2
GOALS = {"forked": "at least 0.6", "looping": ""}
WAYS = {"forked": "bare forked children", "looping": "bare crew.kickoff() in two warm processes"}


def crews(*, kickoffs: int, rounds: int) -> list[Figure]:
    """Three-task crews with a model that answers at once in-process, two at a time; in turns."""
    with ExitStack() as stack:
        server = stack.enter_context(served(CREW, {"WINDLASS_SLOTS": str(SLOTS)}))
        measured: dict[str, Callable[[int], float]] = {"windlass": lambda count: through(server, count)}
        measured |= {way: stack.enter_context(bare(way)) for way in WAYS}
        rates: dict[str, list[float]] = {name: [] for name in measured}
        for measure in measured.values():
            measure(SLOTS * 2)
        for _ in range(rounds):
            for name, measure in measured.items():
                rates[name].append(measure(kickoffs))
    return compared(rates)


def compared(rates: dict[str, list[float]]) -> list[Figure]:
    figures = [Figure("three-task crews ended per second, two slots", spread(rates["windlass"], "", 1))]
    for way, name in WAYS.items():
        ratio = statistics.median(rates["windlass"]) / statistics.median(rates[way])
        figures.append(Figure(f"  {name}", spread(rates[way], "", 1)))
        figures.append(Figure("  ratio to it", f"{ratio:.2f}", GOALS[way]))
    return figures


def through(server: Served, count: int) -> float:
    """Ended per second, from the first start to the last end."""
    ids = [server.kickoff({}) for _ in range(count)]
    statuses = [server.succeeded(kickoff_id) for kickoff_id in ids]
    first = min(seconds(status["started_at"]) for status in statuses)
    return count / (max(seconds(status["finished_at"]) for status in statuses) - first)


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

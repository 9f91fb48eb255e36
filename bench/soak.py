"""Many kickoffs through one server, and what is left of them: python -m bench.soak --kickoffs 5000 --crews 300

With --faults: many kickoffs through a cluster that is harmed all the time, and whether one was lost (fault_soak.py).

Prints a table, and ends with status 1 when anything is left. The machine must be quiet: whatever others put into the
temporary folder meanwhile counts too.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.machine import below, proportional_memory, resident_memory, zygotes_below
from bench.reuse import with_reuse
from bench.served import PROJECTS, Served, a_home, served
from bench.stage import ROOT
from bench.traces import Traces, left, seen_by_root, traces

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLE_EVERY = 100
WARM_UP = 200
"""Kickoffs before the first count: the pools of connections and threads have their size then."""

SETTLING = 15.0
"""Seconds before a count: connections of clients that are kept alive are closed by then."""

LONGEST_IDLE = 150.0
"""Seconds after which an idle process counts as left over. A server ends it after one minute."""

KB = 1024
MEMORY = {"resident": resident_memory, "proportional": proportional_memory}

Post = tuple[Served, dict[str, float]]
"""To whom, and the inputs."""


@dataclass(slots=True)
class Samples:
    """Bytes, by what was measured; `ended` is how many kickoffs had ended by then."""

    ended: list[int] = field(default_factory=list)
    memory: dict[str, list[int]] = field(default_factory=dict)

    def take(self, server: Served, ended: int) -> None:
        self.ended.append(ended)
        zygotes = zygotes_below(server.pid)
        for kind, of in MEMORY.items():
            self.memory.setdefault(f"server, {kind}", []).append(of(server.pid))
            self.memory.setdefault(f"zygotes, {kind}", []).append(sum(map(of, zygotes)))

    def slope(self, what: str) -> float:
        """KB for each 1,000 kickoffs, by least squares over the second half."""
        half = len(self.ended) // 2
        return 1000 * least_squares(self.ended[half:], self.memory[what][half:]) / KB


def main() -> int:
    arguments = argparse.ArgumentParser(prog="make soak", description="Looks for leaks; with --faults, for losses.")
    arguments.add_argument("--kickoffs", type=int, help="of a function (5000), or with --faults of all kinds (500)")
    arguments.add_argument("--crews", type=int, default=300, help="of a three-task crew")
    arguments.add_argument("--faults", action="store_true", help="kill, stop, cut off and fill what serves them")
    arguments.add_argument("--reuse", type=int, default=1, help="kickoffs that one process may run (1)")
    arguments.add_argument("--seed", help="with --faults: the seed that another run printed")
    arguments.add_argument("--kinds", nargs="+", help="with --faults: of what kinds, all when not given")
    given = arguments.parse_args()
    if given.faults:
        given.kickoffs = given.kickoffs or 500
        return soak_with_faults(given)
    given.kickoffs = given.kickoffs or 5000
    return look_for_leaks(given)


def soak_with_faults(given: argparse.Namespace) -> int:
    sys.path.insert(0, str(ROOT / "tests"))  # the cluster and its faults are those of the tests
    from bench import fault_soak

    return fault_soak.main(given)


def look_for_leaks(given: argparse.Namespace) -> int:
    seen_by_root()
    with (
        a_home() as home,
        with_reuse(PROJECTS / "three_tasks", given.reuse) as crew_project,
        with_reuse(PROJECTS / "short_run", given.reuse) as function_project,
    ):
        with served(crew_project, home=home) as first:
            token = first.token
        with (
            served(function_project, {"WINDLASS_SLOTS": "4"}, home) as server,
            server.beside("three-tasks", token) as crew,
        ):
            return soak(server, list(mixed(server, crew, given.kickoffs, given.crews)), crew)


def soak(server: Served, posts: list[Post], crew: Served) -> int:
    run(server, list(mixed(server, crew, WARM_UP, WARM_UP // 10)), Samples())
    before, samples, begun = settled(server), Samples(), time.monotonic()
    run(server, posts, samples)
    took, after = time.monotonic() - begun, settled(server)
    print(f"{len(posts):,} kickoffs ended within {took:.0f} s\n")
    return max(show_left(before, after), show_memory(samples))


def mixed(server: Served, crew: Served, functions: int, crews: int) -> Iterator[Post]:
    """The crews evenly among the functions."""
    every = max(1, functions // crews) if crews else functions + 1
    started = 0
    for number in range(functions):
        yield server, {"seconds": 0}
        if number % every == 0 and started < crews:
            started += 1
            yield crew, {}
    for _ in range(crews - started):
        yield crew, {}


def run(server: Served, posts: list[Post], samples: Samples) -> None:
    """Memory is measured when none runs: what children share would change a zygote's proportional share."""
    for begin in range(0, len(posts), SAMPLE_EVERY):
        batch = [(crew, crew.kickoff(inputs)) for crew, inputs in posts[begin : begin + SAMPLE_EVERY]]
        for crew, kickoff_id in batch:
            crew.succeeded(kickoff_id)
        samples.take(server, begin + len(batch))


def settled(server: Served) -> Traces:
    """Idle processes, which wait for another kickoff with `--reuse`, have ended by then."""
    deadline = time.monotonic() + LONGEST_IDLE
    while time.monotonic() < deadline and any(map(below, zygotes_below(server.pid))):
        time.sleep(1)
    time.sleep(SETTLING)
    return traces(server)


def show_left(before: Traces, after: Traces) -> int:
    print("| what | before | after | left |\n|---|---|---|---|")
    found = left(before, after)
    for what, (count_before, count_after, more) in found.items():
        print(f"| {what} | {count_before} | {count_after} | {more} |")
    if fresh := sorted(after.in_temporary - before.in_temporary):
        print(f"\nnew in the temporary folder: {', '.join(fresh[:20])}")
    return int(any(more for _, _, more in found.values()))


def show_memory(samples: Samples) -> int:
    print("\n| memory | at first, MB | at last, MB | KB per 1,000 kickoffs, second half |\n|---|---|---|---|")
    for what, sizes in samples.memory.items():
        first, last = sizes[0] / KB**2, sizes[-1] / KB**2
        print(f"| {what} | {first:.1f} | {last:.1f} | {samples.slope(what):+.0f} |")
    return 0


def least_squares(xs: list[int], ys: list[int]) -> float:
    """The slope of the line; 0 for too few points to have one."""
    if len(xs) < 2:
        return 0.0
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - middle_x) ** 2 for x in xs)


if __name__ == "__main__":
    sys.exit(main())

"""Faults at random, under load, and what the witnesses say in the end: python -m bench.soak --faults --kickoffs 500

The seed is printed; with `--seed` the same kickoffs and the same faults come in the same order.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import shutil
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faults import harm
from faults.cluster import FAST, KINDS, Cluster
from faults.verdict import verdict

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from faults.verdict import Verdict

AT_ONCE = 12
"""Kickoffs that are open at a time."""
BETWEEN_FAULTS = (0.0, 6.0)
"""Seconds. Often enough to meet a kickoff at every point of its life, seldom enough that most get on meanwhile."""
DISK = 1000
"""Megabytes."""
LONGEST = 900.0
"""Seconds that a kickoff may take to its end, with all that happens meanwhile."""
WORKER_KILLS = {"fast": (FAST, 5, 3.0), "default": ({}, 3, 15.0)}
"""Profile -> its settings, how often a worker is killed, and how many seconds may pass until its kickoff runs again."""


@dataclass(slots=True)
class Course:
    """What happened."""

    seed: str
    ends: Counter[str] = field(default_factory=Counter)
    done: list[tuple[str, str, float]] = field(default_factory=list)
    """Each fault, what it was done to, and how many seconds it took."""


def main(given: Namespace) -> int:
    seed, kinds = given.seed or secrets.token_hex(4), given.kinds or list(KINDS)
    return asyncio.run(soak(seed, given.kickoffs, kinds, given.reuse))


async def soak(seed: str, kickoffs: int, kinds: Sequence[str], reuse: int) -> int:
    print(f"seed {seed}: {kickoffs} kickoffs of {', '.join(kinds)}, reuse = {reuse}", flush=True)
    course, begun = Course(seed), time.monotonic()
    place = new_place()
    async with Cluster(place, kinds=kinds, disk=DISK, reuse=reuse) as cluster:
        await run(cluster, course, kickoffs)
        found = await asyncio.to_thread(verdict, cluster)
        faulty = show(course, found, cluster, time.monotonic() - begun)
    if faulty:
        print(f"\nwhat was left, with the logs: {place}")
    else:
        shutil.rmtree(place)
    return max(int(faulty), await show_takeovers(reuse))


def new_place() -> Path:
    place = Path(tempfile.mkdtemp(prefix="windlass-faults-"))
    place.chmod(0o755)
    return place


async def run(cluster: Cluster, course: Course, kickoffs: int) -> None:
    """Returns when all have ended. The last of them do so in peace."""
    chance, room = random.Random(f"{course.seed} kickoffs"), asyncio.Semaphore(AT_ONCE)
    over = asyncio.Event()
    harming = asyncio.create_task(do_harm(cluster, course, over))
    async with asyncio.TaskGroup() as ending:
        for _ in range(kickoffs):
            kind, seconds = chance.choice(cluster.kinds), round(chance.uniform(0.05, 0.8), 2)
            await room.acquire()
            ended = ending.create_task(one(cluster, course, kind, seconds))
            ended.add_done_callback(lambda _: room.release())
        over.set()
        await harming


async def one(cluster: Cluster, course: Course, kind: str, seconds: float) -> None:
    started = await cluster.kickoff(kind, seconds=seconds)
    status = await cluster.ended(started, within=LONGEST)
    course.ends[f"{status['state']} {status.get('reason') or ''}".strip()] += 1
    if course.ends.total() % 25 == 0:
        print(f"  {course.ends.total()} ended, {len(course.done)} faults", flush=True)


async def do_harm(cluster: Cluster, course: Course, over: asyncio.Event) -> None:
    chance = random.Random(f"{course.seed} faults")
    while not over.is_set():
        await asyncio.sleep(chance.uniform(*BETWEEN_FAULTS))
        name = chance.choice(sorted(harm.ALL))
        own, begun = random.Random(chance.random()), time.monotonic()
        what = await harm.ALL[name](cluster, own)
        if what is not None:
            course.done.append((name, what, time.monotonic() - begun))


def show(course: Course, found: Verdict, cluster: Cluster, seconds: float) -> bool:
    """Whether there is something to find fault with."""
    done = Counter(name for name, _, _ in course.done)
    print(
        f"\n{course.ends.total()} kickoffs ended within {seconds:.0f} s, with {done.total()} faults; seed {course.seed}"
    )
    print("\n| fault | times |\n|---|---|")
    for name, times in sorted(done.items()):
        print(f"| {name.replace('_', ' ')} | {times} |")
    ends = ", ".join(f"{count} {end}" for end, count in course.ends.most_common())
    unasked = failed_unasked(course, done)
    print(f"\nThey ended as: {ends}.")
    print("\n| figure | found | goal |\n|---|---|---|")
    for words, list_of in figures(found, unasked).items():
        print(f"| {words} | {len(list_of)} | 0 |")
    told = cluster.witness.calls()
    print(f"| model calls, of which repeated as they were in flight | {len(told)}, {repeats(told)} | |")
    for name, list_of in found.troubles.items():
        print(f"\n{name}: {list_of[:10]}")
    return bool(found.troubles or unasked)


def figures(found: Verdict, unasked: list[str]) -> dict[str, list[Any]]:
    return {
        "accepted kickoffs without a terminal state": found.without_end,
        "accepted kickoffs with two terminal states": found.two_ends,
        "requests that became no kickoff, or two": found.two_kickoffs,
        "moves that are not in the table": found.wrong_moves,
        "finished tasks run again": found.finished_and_run_again,
        "kickoffs with more repeated calls than attempts were lost": found.repeated_without_a_kill,
        "rows of attempt n written after the first row of n + 1": found.late_rows,
        "runners alive past their lease": found.past_their_lease,
        "tasks of kickoffs that succeeded which are not told as completed": found.untold_tasks,
        "crews whose token usage is not that of all attempts": found.wrong_usage,
        "kickoffs that failed though their process was not killed": unasked,
    }


def failed_unasked(course: Course, done: Mapping[str, int]) -> list[str]:
    """Of a child that is killed, the kickoff fails as crashed."""
    crashed = course.ends["FAILED crashed"]
    others = [
        end for end, count in course.ends.items() for _ in range(count) if end not in {"SUCCESS", "FAILED crashed"}
    ]
    return others + ["FAILED crashed"] * max(0, crashed - done.get("kill_child", 0))


def repeats(calls: list[Any]) -> int:
    return len(calls) - len({(call.run, call.step) for call in calls})


async def show_takeovers(reuse: int) -> int:
    print("\n| worker kill -9 to its kickoff running elsewhere | median, s | most, s | goal, s |\n|---|---|---|---|")
    worst = 0
    for profile, (settings, times, goal) in WORKER_KILLS.items():
        for kind, took in (await takeovers(settings, times, reuse)).items():
            print(
                f"| {profile} settings, {kind} | {statistics.median(took):.1f} | {max(took):.1f} | {goal:g} |",
                flush=True,
            )
            worst = max(worst, int(max(took) > goal))
    return worst


async def takeovers(settings: Mapping[str, str], times: int, reuse: int) -> dict[str, list[float]]:
    """By kind, the seconds from the kill to the next attempt's call of the model."""
    place, kinds = new_place(), ("function", "crew")
    async with Cluster(place, kinds=kinds, settings=settings, apis=1, reuse=reuse) as cluster:
        took = {kind: [await takeover(cluster, kind) for _ in range(times)] for kind in kinds}
    shutil.rmtree(place)
    return took


async def takeover(cluster: Cluster, kind: str) -> float:
    """What the kickoff is forked from is there already, on both workers."""
    others = [await cluster.kickoff(kind, seconds=0.5) for _ in range(cluster.slots * len(cluster.workers))]
    for other in others:
        await cluster.ended(other)
    started = await cluster.kickoff(kind, hold=1)
    await cluster.in_flight(started)
    worker, killed = await cluster.worker_of(started), time.time()
    await asyncio.to_thread(worker.kill)
    await cluster.ended(started)
    again = next(call for call in cluster.witness.calls(started.run) if call.began > killed)
    await cluster.start(worker)
    return again.began - killed

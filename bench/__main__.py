from __future__ import annotations

import argparse
import os
import platform
from typing import TYPE_CHECKING

from bench.accepting import survivors, throughput
from bench.backlogs import claims
from bench.deploys import deploys
from bench.egress import egress
from bench.fairness import fairness
from bench.figures import Figure
from bench.hardship import hardship
from bench.journal import journal
from bench.latency import latency, ready_child, start_up
from bench.limits import limits
from bench.redaction import redaction
from bench.results import Results
from bench.runs import crews, functions
from bench.scale import scale
from bench.secrets import secrets
from bench.stage import CLIENTS, stage
from bench.stopping import stops
from bench.streams import streams
from bench.waiting import waiting
from bench.webhooks import webhooks
from bench.workers import workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Figures = list[Figure]


def accepting(*, quick: bool) -> Iterator[Figures]:
    with stage() as ground:
        yield throughput(ground, seconds=2 if quick else 5, rounds=2 if quick else 5)
        yield survivors(ground, seconds=4)
    yield latency(kickoffs=20 if quick else 200)
    yield start_up(runs=5 if quick else 20)


def runs(*, quick: bool) -> Iterator[Figures]:
    yield crews(kickoffs=20 if quick else 60, rounds=2 if quick else 5)
    yield functions(kickoffs=40 if quick else 200, rounds=2 if quick else 5)
    yield ready_child(kickoffs=20 if quick else 100)
    yield waiting(children=3 if quick else 10, crowd=30 if quick else 300)
    yield stops(rounds=2 if quick else 5)
    yield limits(rounds=20 if quick else 100)
    yield streams(seconds=5 if quick else 20, clients=100 if quick else 500)
    with stage() as ground:
        yield journal(ground, rounds=5 if quick else 20)


def queue(*, quick: bool) -> Iterator[Figures]:
    with stage() as ground:
        yield claims(ground, waiting=10_000 if quick else 100_000, count=50 if quick else 300)
        yield fairness(ground, many=100 if quick else 500, few=20)


def large(*, quick: bool) -> Iterator[Figures]:
    yield deploys(rounds=3 if quick else 10, crews=10 if quick else 50, starts=20 if quick else 100)
    with stage() as ground:
        yield workers(ground, kickoffs=16 if quick else 64, rounds=1 if quick else 3, claims=500 if quick else 2000)
    with stage() as ground:
        yield scale(ground, kickoffs=100_000 if quick else 1_000_000, deployments=1000, rounds=50 if quick else 300)


def ended(*, quick: bool) -> Iterator[Figures]:
    with stage() as ground:
        yield scale(ground, kickoffs=100_000 if quick else 10_000_000, deployments=100, rounds=50 if quick else 300)


def managed(*, quick: bool) -> Iterator[Figures]:
    yield secrets(starts=20 if quick else 100)


def hard(*, quick: bool) -> Iterator[Figures]:
    yield hardship(seconds=4 if quick else 15)


def hooks(*, quick: bool) -> Iterator[Figures]:
    with stage() as ground:
        yield webhooks(ground, kickoffs=50 if quick else 500, events=30, receivers=100)


def masks(*, quick: bool) -> Iterator[Figures]:
    yield redaction(rounds=20 if quick else 200)


def network(*, quick: bool) -> Iterator[Figures]:
    yield egress(kickoffs=20 if quick else 100, downloads=3 if quick else 10)


SUBJECTS: dict[str, Callable[..., Iterator[Figures]]] = {
    "accepting": accepting,
    "runs": runs,
    "queue": queue,
    "scale": large,
    "ended": ended,
    "secrets": managed,
    "hardship": hard,
    "redaction": masks,
    "webhooks": hooks,
    "egress": network,
}


LONG = ("ended",)
"""Subjects that are measured only when they are named."""


def main() -> None:
    arguments = argparse.ArgumentParser(
        prog="make bench",
        description="Medians, with least and most, of interleaved runs, and the change since the last.",
    )
    arguments.add_argument("--quick", action="store_true", help="two minutes, for a first look")
    arguments.add_argument("--only", choices=SUBJECTS, action="append", help="one subject; may be given again")
    given = arguments.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {CLIENTS} clients\n")
    show("figure", "measured", "change", "goal")
    show("---", "---", "---", "---")
    results = Results(quick=given.quick)
    for subject in given.only or [subject for subject in SUBJECTS if subject not in LONG]:
        for figures in SUBJECTS[subject](quick=given.quick):
            for figure in figures:
                show(figure.name, figure.value, results.change(figure), figure.goal)
            results.write()


def show(name: str, value: str, change: str, goal: str) -> None:
    print(f"| {name:<66} | {value:>24} | {change:>8} | {goal:<13} |", flush=True)


if __name__ == "__main__":
    main()

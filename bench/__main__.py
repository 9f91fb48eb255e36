from __future__ import annotations

import argparse
import os
import platform

from bench.scenarios import Figure, latency, start_up, survivors, throughput
from bench.stage import CLIENTS, stage


def main() -> None:
    arguments = argparse.ArgumentParser(
        prog="make bench", description="Medians, with least and most, of interleaved runs."
    )
    arguments.add_argument("--quick", action="store_true", help="a minute, for a first look")
    quick = arguments.parse_args().quick
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {CLIENTS} clients\n")
    heading()
    with stage() as ground:
        show(throughput(ground, seconds=2 if quick else 5, rounds=2 if quick else 5))
        show(survivors(ground, seconds=4))
    show(latency(kickoffs=20 if quick else 200))
    show(start_up(runs=5 if quick else 20))


def heading() -> None:
    show([Figure("figure", "measured", "goal"), Figure("---", "---", "---")])


def show(figures: list[Figure]) -> None:
    for figure in figures:
        print(f"| {figure.name:<56} | {figure.value:>24} | {figure.goal:<13} |", flush=True)


if __name__ == "__main__":
    main()

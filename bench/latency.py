from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.figures import Figure, quantile, spread
from bench.models import model
from bench.reuse import with_reuse
from bench.served import PROJECTS, seconds, served

if TYPE_CHECKING:
    from bench.served import Served

REUSE = 50
WARM_UP = 3
READY = 0.1
"""Seconds between two kickoffs, in which a child gets ready for the next one."""


def latency(*, kickoffs: int) -> list[Figure]:
    """From the row's creation to the crew's code, on an idle server with a warm zygote, one kickoff after the other."""
    with served(PROJECTS / "first_statement", {}) as server:
        statements = [ms(done["result"]["json"]["first_statement"], done) for done in finished(server, kickoffs)]
    with model() as (address, requests):
        own = {"OPENAI_API_KEY": "bench", "OPENAI_BASE_URL": address, "OPENAI_API_BASE": address}
        with served(PROJECTS / "first_request", own) as server:
            asked = [ms(first_after(requests, done), done) for done in finished(server, kickoffs)]
    return [
        Figure("accept to the first statement of the project, p50 ms", f"{quantile(statements, 0.5):.1f}", "under 30"),
        Figure("  p99 ms", f"{quantile(statements, 0.99):.1f}", "under 100"),
        Figure("accept to the first model request, p50 ms", f"{quantile(asked, 0.5):.1f}"),
        Figure("  p99 ms", f"{quantile(asked, 0.99):.1f}"),
    ]


def ready_child(*, kickoffs: int) -> list[Figure]:
    """The same with a child that has run other kickoffs, and so has imported the module; in turns with a new child."""
    project = PROJECTS / "first_statement"
    fresh, reused, known = [], [], set()
    with with_reuse(project, REUSE) as copy, served(project) as usual, served(copy) as reusing:
        for _ in range(kickoffs + WARM_UP):
            time.sleep(READY)
            done = usual.succeeded(usual.kickoff({}))
            fresh.append(ms(done["result"]["json"]["first_statement"], done))
            done = reusing.succeeded(reusing.kickoff({}))
            called, process = done["result"]["json"]["called"], done["result"]["json"]["process"]
            if process in known:
                reused.append(ms(called, done))
            known.add(process)
    if len(reused) < kickoffs / 2:
        raise RuntimeError(f"only {len(reused)} of {kickoffs} kickoffs ran in a process that had run others")
    return [
        Figure(
            "accept to the function's first statement, a child ready, p50 ms", f"{quantile(reused, 0.5):.1f}", "under 8"
        ),
        Figure("  p99 ms", f"{quantile(reused, 0.99):.1f}"),
        Figure("  first statement of the module, a new child, p50 ms", f"{quantile(fresh[WARM_UP:], 0.5):.1f}"),
    ]


def start_up(*, runs: int) -> list[Figure]:
    def once(command: list[str]) -> float:
        begun = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        return 1000 * (time.perf_counter() - begun)

    program = [str(Path(sys.executable).parent / "windlass"), "--help"]
    ours, bare = [], []
    for _ in range(runs):
        ours.append(once(program))
        bare.append(once([sys.executable, "-c", "pass"]))
    return [
        Figure("windlass --help, ms", spread(ours, ""), "under 150"),
        Figure("  a bare Python, ms", spread(bare, "")),
    ]


def finished(server: Served, kickoffs: int) -> list[dict[str, Any]]:
    """The statuses of so many kickoffs, after some that warm up."""
    ended = []
    for number in range(kickoffs + WARM_UP):
        status = server.succeeded(server.kickoff({}))
        if number >= WARM_UP:
            ended.append(status)
    return ended


def ms(at: float, status: dict[str, Any]) -> float:
    return 1000 * (at - seconds(status["created_at"]))


def first_after(requests: list[float], status: dict[str, Any]) -> float:
    created = seconds(status["created_at"])
    return min(at for at in requests if at >= created)

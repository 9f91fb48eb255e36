"""How soon the server answers while its crews make it hard for it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.figures import Figure, quantile
from bench.machine import MB, below, written_by, zygotes_below
from bench.served import PROJECTS, served, wait_until
from bench.stage import ROOT

if TYPE_CHECKING:
    from bench.served import Served

SLOTS = 4
PER_SECOND = 50
AHEAD = 100
"""Kickoffs that are there from the start, so that one that ends makes room for the next."""

LIMITS = {"memory_limit": "256 MB"}
KINDS = {
    "": "no crew runs",
    "sleep": "4 crews sleep",
    "burn": "4 crews burn all cores",
    "flood": "4 crews flood output",
    "grow": "4 crews grow to their memory limit",
    "give": "4 crews give 20 MB each every 2 s",
}
GOAL = "p99 under 100"


def hardship(*, seconds: float) -> list[Figure]:
    with served(PROJECTS / "hardship", {"WINDLASS_SLOTS": str(SLOTS)}) as server:
        ended = server.kickoff({"do": "sleep"})
        wait_until(lambda: server.status(ended)["started_at"] is not None, what="the first run to start")
        server.stop(ended)
        server.ended(ended)
        return [figure for kind in KINDS for figure in measured(server, kind, ended, seconds)]


def measured(server: Served, kind: str, ended: str, seconds: float) -> list[Figure]:
    ids = [server.kickoff({"do": kind}, limits=LIMITS) for _ in range(AHEAD if kind else 0)]
    if ids:
        wait_until(lambda: all(begun(server, one) for one in ids[:SLOTS]), what="the crews to run")
    requests = {
        "GET /status": request(server, f"GET /status/{ended if kind in {'', 'give'} else ids[0]}"),
        "POST /stop": request(server, f"POST /stop/{ended}"),
        "GET /health": request(server, "GET /health"),
    }
    before = written_below(server)
    figures = [figure_of(name, kind, answers) for name, answers in asked(server, requests, seconds).items()]
    written = written_below(server) - before
    return [*figures, *what_they_did(kind, written / seconds / MB, stop_all(server, ids))]


def written_below(server: Served) -> int:
    return written_by([run for zygote in zygotes_below(server.pid) for run in below(zygote)])


def stop_all(server: Served, ids: list[str]) -> int:
    """How many of them had begun."""
    went_on = sum(begun(server, one) for one in ids)
    for kickoff_id in reversed(ids):  # those that wait first: none of them is to start
        server.stop(kickoff_id)
    for kickoff_id in ids[: went_on + SLOTS]:
        server.ended(kickoff_id)
    return went_on


def what_they_did(kind: str, per_second: float, went_on: int) -> list[Figure]:
    """Whether it was as hard as it was to be."""
    if kind == "flood":
        return [Figure("  written by the crews together, MB/s", f"{per_second:,.0f}")]
    if went_on == AHEAD:
        raise RuntimeError(f"all {AHEAD} kickoffs were begun before the time was over: there must be more")
    words = {"grow": "  runs that reached the limit", "give": "  results of 20 MB"}.get(kind)
    return [Figure(words, str(went_on - SLOTS))] if words else []


def begun(server: Served, kickoff_id: str) -> bool:
    return server.status(kickoff_id)["started_at"] is not None


def request(server: Served, line: str) -> bytes:
    return (
        f"{line} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {server.token}\r\nContent-Length: 0\r\n\r\n".encode()
    )


def asked(server: Served, requests: dict[str, bytes], seconds: float) -> dict[str, dict[str, Any]]:
    """By bench.pace, a process of its own."""
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        file = Path(folder) / "requests"
        file.write_text("\n".join(base64.b64encode(one).decode() for one in requests.values()))
        command = [sys.executable, "-m", "bench.pace", str(server.port), str(seconds), str(PER_SECOND), str(file)]
        told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=seconds + 60)
    return dict(zip(requests, json.loads(told.stdout), strict=True))


def figure_of(name: str, kind: str, answers: dict[str, Any]) -> Figure:
    latencies, failures = answers["latencies"], answers["failures"]
    value = f"{quantile(latencies, 0.5):.1f} / {quantile(latencies, 0.99):.1f}"
    words = f"{name} while {KINDS[kind]}, p50 / p99 ms"
    goal = "" if kind in {"", "give"} else GOAL
    return Figure(words, f"{value}, failed: {', '.join(failures)}" if failures else value, goal)

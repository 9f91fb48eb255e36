"""How soon the server answers while its crews make it hard for it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bench.figures import Figure, quantile
from bench.hostile import Memory, request, silent_clients, wrong_tokens
from bench.machine import MB, below, written_by, zygotes_below
from bench.served import PROJECTS, served, wait_until
from bench.stage import ROOT

if TYPE_CHECKING:
    from bench.served import Served

SLOTS = 4
PER_SECOND = 50
AHEAD = 8
"""Kickoffs that wait, so that one that ends makes room for the next, however fast the machine is."""

LIMITS = {"memory_limit": "256 MB", "result_limit": "64 MB"}
KINDS = {
    "": "no crew runs",
    "sleep": "4 crews sleep",
    "burn": "4 crews burn all cores",
    "flood": "4 crews flood output",
    "grow": "4 crews grow to their memory limit",
    "give": "4 crews give 20 MB each every 2 s",
    "hostile": "4 crews send frames of 64 MB of [] or 800 outputs of 1 MB",
    "silent": "100 clients do not read 60 MB",
    "wrong": "1,000 wrong tokens a second are tried",
}
RUNS_ON = {"sleep", "burn", "flood", "grow"}
"""Kinds of which the first kickoff goes on for long enough to be asked for."""
BY_CLIENTS = {"", "silent", "wrong"}
GOAL, GOAL_OF_HOSTILE = "p99 under 100", "p99 under 250"
GOALS = {
    **dict.fromkeys(KINDS, GOAL),
    **dict.fromkeys(("hostile", "silent", "wrong"), GOAL_OF_HOSTILE),
    **dict.fromkeys(("", "give"), ""),
}


def hardship(*, seconds: float) -> list[Figure]:
    with served(PROJECTS / "hardship", {"WINDLASS_SLOTS": str(SLOTS)}) as server:
        ended = server.kickoff({"do": "sleep"})
        wait_until(lambda: server.status(ended)["started_at"] is not None, what="the first run to start")
        server.stop(ended)
        server.ended(ended)
        return [figure for kind in KINDS for figure in measured(server, kind, ended, seconds)]


def measured(server: Served, kind: str, ended: str, seconds: float) -> list[Figure]:
    figures: list[Figure] = []
    with ExitStack() as stack:
        if kind == "silent":
            large = server.kickoff({"do": "give_60_mb"}, limits={"memory_limit": "1 GB"})
            wait_until(lambda: has_ended(server, large), within=120, what="the result of 60 MB")
        memory = stack.enter_context(Memory(server))
        if kind == "silent":
            stack.enter_context(silent_clients(server, large))
        if kind == "wrong":
            figures = stack.enter_context(wrong_tokens(server, seconds))
        supply = stack.enter_context(Supply(server, kind if kind not in BY_CLIENTS else ""))
        of_status = supply.first if kind in RUNS_ON else ended
        requests = {
            "GET /status": request(server, f"GET /status/{of_status}", server.token),
            "POST /stop": request(server, f"POST /stop/{ended}", server.token),
            "GET /health": request(server, "GET /health", server.token),
        }
        before = written_below(server)
        answers = asked(server, requests, seconds)
        written = (written_below(server) - before) / seconds / MB
    found = [figure_of(name, kind, answer) for name, answer in answers.items()]
    hostile = [memory.figure()] if GOALS[kind] == GOAL_OF_HOSTILE else []
    return [*found, *what_they_did(kind, written, supply.ended), *figures, *hostile]


def has_ended(server: Served, kickoff_id: str) -> bool:
    """Asks in a way that reads no result."""
    answer = server.client.get(f"/attempts/{kickoff_id}")
    answer.raise_for_status()
    attempts = answer.json()["attempts"]
    return bool(attempts and attempts[-1]["ended_at"])


def written_below(server: Served) -> int:
    return written_by([run for zygote in zygotes_below(server.pid) for run in below(zygote)])


class Supply:
    """Keeps kickoffs of this kind waiting, none for "", and the slots busy. At the end of the block all of them have
    ended.
    """

    def __init__(self, server: Served, kind: str) -> None:
        self._server, self._kind = server, kind
        self._running: list[str] = []
        self._waiting: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep)
        self.first = ""
        self.ended = 0

    def __enter__(self) -> Self:
        if self._kind:
            self._add()
            self.first = self._waiting[0]
            wait_until(self._all_run, what="the crews to run")
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._kind:
            return
        self._over.set()
        self._thread.join()
        self.ended -= SLOTS
        for kickoff_id in [*reversed(self._waiting), *self._running]:  # those that wait first: none of them is to start
            self._server.stop(kickoff_id)
        for kickoff_id in self._running:
            wait_until(partial(has_ended, self._server, kickoff_id), what="the crews to end")

    def _all_run(self) -> bool:
        self._look()
        return len(self._running) >= SLOTS

    def _keep(self) -> None:
        while not self._over.wait(0.2):
            self._look()
            self._add()

    def _add(self) -> None:
        while len(self._waiting) < AHEAD:
            self._waiting.append(self._server.kickoff({"do": self._kind}, limits=LIMITS))

    def _look(self) -> None:
        """Counts those that have begun; the last SLOTS of them may still run."""
        while self._waiting and begun(self._server, self._waiting[0]):
            self._running = [*self._running, self._waiting.pop(0)][-SLOTS:]
            self.ended += 1


def what_they_did(kind: str, per_second: float, ended: int) -> list[Figure]:
    """Whether it was as hard as it was to be."""
    if kind == "flood":
        return [Figure("  written by the crews together, MB/s", f"{per_second:,.0f}")]
    words = {
        "grow": "  runs that reached the limit",
        "give": "  results of 20 MB",
        "hostile": "  runs that were ended for what they sent",
    }.get(kind)
    return [Figure(words, str(ended))] if words else []


def begun(server: Served, kickoff_id: str) -> bool:
    answer = server.client.get(f"/attempts/{kickoff_id}")
    answer.raise_for_status()
    return bool(answer.json()["attempts"])


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
    return Figure(words, f"{value}, failed: {dict(Counter(failures))}" if failures else value, GOALS[kind])

from __future__ import annotations

import json
import os
import signal
import statistics
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from bench.figures import Figure, spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.stage import Server, Stage

PEERS = {"floor": "Starlette with one asyncpg statement", "celery": "FastAPI with Celery and Redis"}


def throughput(stage: Stage, *, seconds: float, rounds: int) -> list[Figure]:
    """Accepted kickoffs and answered statuses per second; the servers in turn, so that noise hits all of them."""
    names = ["windlass", "floor", *(["celery"] if stage.environment["BENCH_REDIS"] else [])]
    with ExitStack() as running:
        servers = {name: running.enter_context(stage.server(name)) for name in names}
        accepted: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(rounds):
            for name, server in servers.items():
                empty_queue(stage)
                accepted[name].append(stage.load(server, [server.post()], seconds)["per_second"])
        waiting, ended = answered(stage, servers, seconds, rounds)
    return [
        *compared("POST /kickoff", accepted, {"floor": "at least 0.5", "celery": "more than 2.5"}),
        *compared("GET /status of one that waits", waiting, {"floor": "at least 0.4"}),
        *compared("GET /status of one that has ended", ended, {"floor": "at least 0.4"}),
    ]


def answered(
    stage: Stage, servers: dict[str, Server], seconds: float, rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Rates of statuses, of kickoffs that wait and of kickoffs that have ended; to the floor all are one."""
    ours, floor = servers["windlass"], servers["floor"]
    rates: dict[str, list[float]] = {"waiting": [], "ended": [], "floor": []}

    def measure(name: str, server: Server, ids: list[str]) -> None:
        rates[name].append(stage.load(server, [server.get(one) for one in ids], seconds)["per_second"])

    for _ in range(rounds):
        empty_queue(stage)
        ids = kickoff_ids(stage, ours)
        measure("waiting", ours, ids)
        measure("floor", floor, kickoff_ids(stage, floor))
        end_all(stage)
        measure("ended", ours, ids)
    waiting, ended = [{"windlass": rates[name], "floor": rates["floor"]} for name in ("waiting", "ended")]
    return waiting, ended


def end_all(stage: Stage) -> None:
    """As if they had run; nobody works on what is accepted here."""
    with psycopg.connect(stage.environment["BENCH_DATABASE"], autocommit=True) as connection:
        connection.execute("UPDATE kickoffs SET state = 'SUCCESS', started_at = now(), finished_at = now()")


def empty_queue(stage: Stage) -> None:
    """Each measurement begins without what the one before left waiting."""
    with psycopg.connect(stage.environment["BENCH_DATABASE"], autocommit=True) as connection:
        connection.execute("TRUNCATE kickoffs CASCADE")


def kickoff_ids(stage: Stage, server: Server) -> list[str]:
    return [json.loads(body)["kickoff_id"] for body in stage.load(server, [server.post()], 0.3, bodies=True)["bodies"]]


def compared(what: str, rates: dict[str, list[float]], goals: dict[str, str]) -> list[Figure]:
    ours = rates["windlass"]
    figures = [Figure(f"{what}, per second", spread(ours, ""))]
    for name, goal in goals.items():
        if name in rates:
            ratio = statistics.median(ours) / statistics.median(rates[name])
            figures.append(Figure(f"  {PEERS[name]}, per second", spread(rates[name], "")))
            figures.append(Figure("  ratio to it", f"{ratio:.2f}", goal))
    return figures


def survivors(stage: Stage, *, seconds: float) -> list[Figure]:
    """Kill -9 of PostgreSQL in the middle of accepting: every id that was answered must be a row after it came back."""
    url = stage.environment["BENCH_DATABASE"]
    with stage.server("windlass") as server:
        with psycopg.connect(url) as connection:
            postmaster = postmaster_of(connection.info.backend_pid)
        threading.Timer(seconds / 2, os.kill, (postmaster, signal.SIGKILL)).start()
        bodies = stage.load(server, [server.post()], seconds, bodies=True)["bodies"]
    answered = {json.loads(body)["kickoff_id"] for body in bodies}
    with connected_again(url) as connection:
        rows = connection.execute("SELECT id::text FROM kickoffs").fetchall()
    lost = answered - {row[0] for row in rows}
    return [
        Figure("kickoffs answered around a kill -9 of PostgreSQL", str(len(answered))),
        Figure("  of them lost", str(len(lost)), "0"),
    ]


def postmaster_of(backend: int) -> int:
    return int(Path(f"/proc/{backend}/stat").read_text().rsplit(")", 1)[1].split()[1])


@contextmanager
def connected_again(url: str) -> Iterator[psycopg.Connection[Any]]:
    deadline = time.monotonic() + 30
    while True:
        try:
            with psycopg.connect(url, connect_timeout=2) as connection:
                yield connection
                return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)

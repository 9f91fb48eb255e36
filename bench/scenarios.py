from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psycopg

from bench.stage import ROOT, Stage, free_port
from windlass.embedded.offline_model import offline_model_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.stage import Server

WINDLASS = [sys.executable, "-m", "windlass"]
CREW_PROJECTS = ROOT / "bench" / "projects"


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: str
    goal: str = ""


def throughput(stage: Stage, *, seconds: float, rounds: int) -> list[Figure]:
    """Accepted kickoffs and answered statuses per second; the servers in turn, so that noise hits all of them."""
    names = ["windlass", "floor", *(["celery"] if stage.environment["BENCH_REDIS"] else [])]
    accepted: dict[str, list[float]] = {name: [] for name in names}
    answered: dict[str, list[float]] = {name: [] for name in ("windlass", "floor")}
    with ExitStack() as running:
        servers = {name: running.enter_context(stage.server(name)) for name in names}
        for _ in range(rounds):
            for name, server in servers.items():
                accepted[name].append(stage.load(server, [server.post()], seconds)["per_second"])
        for _ in range(rounds):
            for name, rates in answered.items():
                server = servers[name]
                requests = [server.get(kickoff_id) for kickoff_id in kickoff_ids(stage, server)]
                rates.append(stage.load(server, requests, seconds)["per_second"])
    return [
        *compared("POST /kickoff", accepted, {"floor": "at least 0.5", "celery": "more than 2.5"}),
        *compared("GET /status", answered, {"floor": "at least 0.4"}),
    ]


def kickoff_ids(stage: Stage, server: Server) -> list[str]:
    return [json.loads(body)["kickoff_id"] for body in stage.load(server, [server.post()], 0.3, bodies=True)["bodies"]]


PEERS = {"floor": "Starlette with one asyncpg statement", "celery": "FastAPI with Celery and Redis"}


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


def latency(*, kickoffs: int) -> list[Figure]:
    """From the row's creation to the crew's code, on an idle server with a warm zygote, one kickoff after the other."""
    with served(CREW_PROJECTS / "first_statement", {}) as client:
        statements = [ms(done["result"]["json"]["first_statement"], done) for done in finished(client, kickoffs)]
    with model() as (address, requests):
        own = {"OPENAI_API_KEY": "bench", "OPENAI_BASE_URL": address, "OPENAI_API_BASE": address}
        with served(CREW_PROJECTS / "first_request", own) as client:
            asked = [ms(first_after(requests, done), done) for done in finished(client, kickoffs)]
    return [
        Figure("accept to the first statement of the project, p50 ms", f"{quantile(statements, 0.5):.1f}", "under 30"),
        Figure("  p99 ms", f"{quantile(statements, 0.99):.1f}", "under 100"),
        Figure("accept to the first model request, p50 ms", f"{quantile(asked, 0.5):.1f}"),
        Figure("  p99 ms", f"{quantile(asked, 0.99):.1f}"),
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


@contextmanager
def served(project: Path, environment: dict[str, str]) -> Iterator[httpx.Client]:
    """`windlass dev` on a home of its own."""
    home = Path(tempfile.mkdtemp(prefix="windlass-bench-"))
    home.chmod(0o755)
    port = free_port()
    own = {"WINDLASS_HOME": str(home), "WINDLASS_PORT": str(port), "WINDLASS_SLOTS": "2", **environment}
    given = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")} | own
    log = (home / "log").open("w")
    process = subprocess.Popen([*WINDLASS, "dev", str(project)], env=given, stdout=log, stderr=log)
    try:
        wait_until(lambda: httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200)
        shown = subprocess.run(
            [*WINDLASS, "tokens", "show"], env=given, capture_output=True, text=True, check=True
        ).stdout
        token = re.findall(r"wlo_\w+", shown)[0]
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {token}"}, timeout=70
        ) as client:
            yield client
    finally:
        process.terminate()
        process.wait(30)
        log.close()
        shutil.rmtree(home, ignore_errors=True)


def finished(client: httpx.Client, kickoffs: int) -> list[dict[str, Any]]:
    """The statuses of so many kickoffs, after some that warm up."""
    warm_up, ended = 3, []
    for number in range(kickoffs + warm_up):
        kickoff_id = client.post("/kickoff", json={"inputs": {}}).json()["kickoff_id"]
        status = client.get(f"/status/{kickoff_id}", params={"wait": 60}).json()
        if status["state"] != "SUCCESS":
            raise RuntimeError(f"a kickoff ended with: {status}")
        if number >= warm_up:
            ended.append(status)
    return ended


def ms(at: float, status: dict[str, Any]) -> float:
    return 1000 * (at - datetime.fromisoformat(status["created_at"]).timestamp())


def first_after(requests: list[float], status: dict[str, Any]) -> float:
    created = datetime.fromisoformat(status["created_at"]).timestamp()
    return min(at for at in requests if at >= created)


@contextmanager
def model() -> Iterator[tuple[str, list[float]]]:
    """The offline model behind a server that notes when each request came."""
    requests: list[float] = []
    app = offline_model_app()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            requests.append(time.time())
            body = self.rfile.read(int(self.headers["content-length"]))
            status, content = asyncio.run(answered(app, self.path, body))
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
        server.shutdown()


async def answered(app: Any, path: str, body: bytes) -> tuple[int, bytes]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://model") as client:
        answer = await client.post(path, content=body, headers={"content-type": "application/json"})
        return answer.status_code, answer.content


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if holds():
                return
        time.sleep(0.05)
    raise RuntimeError(f"the server was not ready within {seconds} s")


def quantile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def spread(values: list[float], unit: str) -> str:
    return f"{statistics.median(values):,.0f}{unit} ({min(values):,.0f} to {max(values):,.0f})"

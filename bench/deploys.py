"""`windlass serve` with many deployments: the time of a deploy, of starts, and of the list in the control API."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from bench.figures import Figure, quantile, spread
from bench.served import WINDLASS, a_home, answers, client_of, seconds, wait_until
from bench.stage import free_port
from windlass.config import environment
from windlass.embedded_postgres.postgres import running_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import httpx

CODE = """import time

BEGUN = time.time()


def work() -> dict:
    return {{"version": {version}, "begun": BEGUN}}
"""
PYPROJECT = '[project]\nname = "deployed"\nversion = "0.1.0"\n\n[tool.windlass]\nentrypoint = "deployed:work"\n'
LISTED = 1000
WARM_UP = 5
MANY = """
INSERT INTO deployments (id, slug, deployed)
SELECT gen_random_uuid(), 'listed-' || lpad(number::text, 5, '0'), true FROM generate_series(1, %s) AS number
"""


@dataclass(frozen=True, slots=True)
class DeployServer:
    """`windlass serve`, and a project that is deployed."""

    environment: dict[str, str]
    url: str
    pid: int
    project: Path

    def command(self, *arguments: str) -> Any:
        done = subprocess.run(
            [*WINDLASS, *arguments, "--json"], env=self.environment, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    def deploy(self, name: str, version: int) -> None:
        (self.project / "deployed.py").write_text(CODE.format(version=version))
        self.command("deploy", str(self.project), "--name", name)

    def client(self, slug: str, token: str) -> httpx.Client:
        return client_of(f"{self.url}/crews/{slug}", token)


def deploys(*, rounds: int, crews: int, starts: int) -> list[Figure]:
    with served_deployments() as server:
        server.deploy("first", 0)  # makes the zygote
        token = personal_token(server)
        with server.client("first", token) as client:
            run(client)
            times = [deployed(server, client, version) for version in range(1, rounds + 1)]
        for number in range(crews - 1):
            server.deploy(f"crew-{number:02}", number)
        slugs = ["first", *(f"crew-{number:02}" for number in range(crews - 1))]
        one, many = started(server, slugs, token, starts)
        zygotes = zygotes_of(server.pid)
        lists = listed(server, token)
    return [
        Figure("one line changed: from `windlass deploy` to the kickoff's start, s", spread(times, "", 2), "under 3"),
        Figure("accept to the first statement, one deployment, p50 ms", f"{statistics.median(one):.1f}"),
        Figure(f"  {crews} deployments on one interpreter", f"{statistics.median(many):.1f}"),
        Figure("  ratio", f"{statistics.median(many) / statistics.median(one):.2f}", "at most 1.3"),
        Figure("  zygotes", str(zygotes), "1"),
        Figure(f"list of {LISTED:,} deployments, 100 a page, p50 (p95) ms", in_ms(lists[100]), "p95 < 50"),
        Figure("  all in one page", in_ms(lists[LISTED]), "p95 < 50"),
    ]


def deployed(server: DeployServer, client: httpx.Client, version: int) -> float:
    """Returns the seconds from the start of the command to the start of the first kickoff on the new version."""
    begun = time.time()
    server.deploy("first", version)
    found = run(client)["result"]["json"]
    if found["version"] != version:
        raise RuntimeError(f"version {version} does not serve: {found}")
    return float(found["begun"]) - begun


def run(client: httpx.Client) -> dict[str, Any]:
    kickoff = client.post("/kickoff", json={"inputs": {}}).raise_for_status().json()["kickoff_id"]
    status: dict[str, Any] = client.get(f"/status/{kickoff}", params={"wait": 60}).raise_for_status().json()
    if status["state"] != "SUCCESS":
        raise RuntimeError(f"a kickoff ended with: {status}")
    return status


def started(server: DeployServer, slugs: list[str], token: str, count: int) -> tuple[list[float], list[float]]:
    """Returns the milliseconds from accept to the project's first statement, of one kickoff after the other: those of
    the first deployment, and those of the others, in turns.
    """
    one, many = [], []
    with ExitStack() as stack:
        first, *others = [stack.enter_context(server.client(slug, token)) for slug in slugs]
        for client in others:
            run(client)
        for number in range(count):
            one.append(start_of(run(first)))
            many.append(start_of(run(others[number % len(others)])))
    return one, many


def start_of(status: dict[str, Any]) -> float:
    return 1000 * (float(status["result"]["json"]["begun"]) - seconds(status["created_at"]))


def listed(server: DeployServer, token: str) -> dict[int, list[float]]:
    url = running_url(Path(server.environment["WINDLASS_HOME"]))
    with psycopg.connect(str(url), autocommit=True) as connection:
        connection.execute(MANY, [LISTED])
    times: dict[int, list[float]] = {100: [], LISTED: []}
    with client_of(server.url, token) as client:
        for _ in range(WARM_UP + 100):
            for limit, took in times.items():
                begun = time.perf_counter()
                client.get("/api/v1/deployments", params={"limit": limit}).raise_for_status()
                took.append(1000 * (time.perf_counter() - begun))
    return {limit: took[WARM_UP:] for limit, took in times.items()}


def in_ms(times: list[float]) -> str:
    return f"{statistics.median(times):.1f} ({quantile(times, 0.95):.1f})"


def zygotes_of(server: int) -> int:
    """Returns how many zygotes the server has. Runs are children of a zygote."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")[:-1]
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        found += parent == server and any(word.endswith(b"windlass_child/__main__.py") for word in words)
    return found


def personal_token(server: DeployServer) -> str:
    return str(server.command("tokens", "create", "--personal", "--name", "bench")["token"])


@contextmanager
def served_deployments(variables: Mapping[str, str] | None = None) -> Iterator[DeployServer]:
    """`windlass serve` on a home of its own, with these variables."""
    with ExitStack() as stack:
        home, port = stack.enter_context(a_home()), free_port()
        project = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="windlass-bench-project-")))
        (project / "pyproject.toml").write_text(PYPROJECT)
        own = {"WINDLASS_HOME": str(home), "WINDLASS_PORT": str(port), "WINDLASS_SLOTS": "2", "HOME": str(home)}
        given = {**environment(), **own, **(variables or {})}
        written = stack.enter_context((home / "log").open("a"))
        process = subprocess.Popen([*WINDLASS, "serve"], env=given, stdout=written, stderr=written)
        stack.callback(process.wait, 60)
        stack.callback(process.terminate)
        wait_until(lambda: answers(process, port, home / "log"), what="the server to be ready")
        yield DeployServer(given, f"http://127.0.0.1:{port}", process.pid, project)

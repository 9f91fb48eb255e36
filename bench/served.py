"""`windlass dev` on a home of its own, as a process that is measured from outside."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx

from bench.stage import ROOT, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

WINDLASS = [sys.executable, "-m", "windlass"]
START_SECONDS = 240
"""A server makes its database and imports the framework first, which takes a minute on a busy machine."""
LONGEST_LIST = 1000
"""Kickoffs in a request."""

PROJECTS = ROOT / "bench" / "projects"


@dataclass(frozen=True, slots=True)
class Served:
    """A server that is ready, and a client with its organization's token."""

    client: httpx.Client
    home: Path
    pid: int
    port: int
    token: str

    @contextmanager
    def beside(self, slug: str, token: str) -> Iterator[Self]:
        """Another crew of this server, which was served from the same home before."""
        with client_of(f"http://127.0.0.1:{self.port}/crews/{slug}", token) as client:
            yield replace(self, client=client, token=token)

    def kickoff(self, inputs: dict[str, Any], **members: Any) -> str:
        answer = self.client.post("/kickoff", json={"inputs": inputs, **members})
        answer.raise_for_status()
        return str(answer.json()["kickoff_id"])

    def kickoffs(self, count: int) -> list[str]:
        """So many without inputs, by one request for each 1,000."""
        ids: list[str] = []
        while len(ids) < count:
            answer = self.client.post("/kickoffs", json=[{"inputs": {}}] * min(count - len(ids), LONGEST_LIST))
            answer.raise_for_status()
            ids += [str(one["kickoff_id"]) for one in answer.json()["kickoffs"]]
        return ids

    def status(self, kickoff_id: str, wait: float = 0) -> dict[str, Any]:
        answer = self.client.get(f"/status/{kickoff_id}", params={"wait": wait} if wait else {})
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def ended(self, kickoff_id: str, within: float = 300) -> dict[str, Any]:
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            status = self.status(kickoff_id, wait=min(60, within))
            if status["finished_at"]:
                return status
        raise RuntimeError(f"kickoff {kickoff_id} did not end within {within} s; see {self.home / 'log'}")

    def succeeded(self, kickoff_id: str, within: float = 300) -> dict[str, Any]:
        status = self.ended(kickoff_id, within)
        if status["state"] != "SUCCESS":
            raise RuntimeError(f"a kickoff ended with: {status}")
        return status

    def stop(self, kickoff_id: str) -> dict[str, Any]:
        answer = self.client.post(f"/stop/{kickoff_id}")
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


@contextmanager
def a_home() -> Iterator[Path]:
    """A WINDLASS_HOME that others may pass through: PostgreSQL and crews run as other users in root's place."""
    home = Path(tempfile.mkdtemp(prefix="windlass-bench-"))
    home.chmod(0o755)
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def served(project: Path, environment: dict[str, str] | None = None, home: Path | None = None) -> Iterator[Served]:
    """On a home of its own, where none is given."""
    with ExitStack() as stack:
        home = home or stack.enter_context(a_home())
        port = free_port()
        own = {"WINDLASS_HOME": str(home), "WINDLASS_PORT": str(port), "WINDLASS_SLOTS": "2", **(environment or {})}
        given = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")} | own
        process = stack.enter_context(started(project, given, home / "log"))
        wait_until(lambda: answers(process, port, home / "log"), START_SECONDS, what="the server to be ready")
        token = token_shown(given)
        client = stack.enter_context(client_of(f"http://127.0.0.1:{port}", token))
        yield Served(client, home, process.pid, port, token)


@contextmanager
def started(project: Path, environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("a") as written:
        process = subprocess.Popen([*WINDLASS, "dev", str(project)], env=environment, stdout=written, stderr=written)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def client_of(base_url: str, token: str) -> httpx.Client:
    return httpx.Client(base_url=base_url, headers={"Authorization": f"Bearer {token}"}, timeout=70)


def answers(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"the server did not start:\n{log.read_text()[-2000:]}")
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200
    return False


def token_shown(environment: Mapping[str, str]) -> str:
    command = [*WINDLASS, "tokens", "show"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return str(re.findall(r"wlo_\w+", shown)[0])


def wait_until(holds: Callable[[], bool], within: float = 60, *, what: str, every: float = 0.05) -> float:
    """Seconds that it took."""
    begun = time.monotonic()
    while not holds():
        if time.monotonic() - begun > within:
            raise RuntimeError(f"waited {within} s in vain for {what}")
        time.sleep(every)
    return time.monotonic() - begun


def seconds(at: str) -> float:
    """Unix time of a time as statuses have it."""
    return datetime.fromisoformat(at).timestamp()

"""What the scenarios stand on: one PostgreSQL, the servers as processes of their own, a client process."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.embedded_postgres.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENTS = 32
ROOT = Path(__file__).parents[1]
BODY = json.dumps({"inputs": {"topic": "tides", "audience": "sailors"}})


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers at 127.0.0.1:`port`, as it said itself."""

    port: int
    token: str
    process: subprocess.Popen[str]

    def post(self) -> bytes:
        return self._request(
            "POST /kickoff", f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n", BODY
        )

    def get(self, kickoff_id: str) -> bytes:
        return self._request(f"GET /status/{kickoff_id}", "", "")

    def _request(self, line: str, headers: str, body: str) -> bytes:
        head = f"{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}"
        return f"{head}\r\n{headers}\r\n{body}".encode()


@dataclass(frozen=True, slots=True)
class Stage:
    folder: Path
    environment: dict[str, str]

    @contextmanager
    def server(self, name: str) -> Iterator[Server]:
        """One process of bench.servers."""
        port = free_port()
        command = [sys.executable, "-m", "bench.servers", name, str(port)]
        process = subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield Server(port, json.loads(process.stdout.readline())["token"], process)
        finally:
            process.terminate()
            process.wait(30)

    def load(self, server: Server, requests: list[bytes], seconds: float, *, bodies: bool = False) -> dict[str, Any]:
        """What bench.load measured."""
        sent, result = self.folder / "requests", self.folder / "result"
        sent.write_text("\n".join(base64.b64encode(request).decode() for request in requests))
        command = [
            sys.executable,
            "-m",
            "bench.load",
            str(server.port),
            str(seconds),
            str(CLIENTS),
            str(sent),
            str(result),
        ]
        subprocess.run([*command, *(["--bodies"] if bodies else [])], cwd=ROOT, check=True, timeout=seconds + 60)
        measured: dict[str, Any] = json.loads(result.read_text())
        if measured["refused"] and not bodies:
            raise RuntimeError(f"{measured['refused']} requests were refused: the figure would be worth nothing")
        return measured


@contextmanager
def stage() -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="windlass-bench-"))
    folder.chmod(0o755)
    postgres = EmbeddedPostgres(folder)
    url = postgres.start()
    given = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
    own = {
        "BENCH_DATABASE": url,
        "WINDLASS_DATABASE_URL": url,
        "WINDLASS_HOME": str(folder / "home"),
        "WINDLASS_MAX_WAITING": "1000000",  # nobody works on what is accepted
    }
    try:
        with redis(folder) as address:
            yield Stage(folder, {**given, **own, "BENCH_REDIS": address or ""})
    finally:
        postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def redis(folder: Path) -> Iterator[str | None]:
    """None where this machine has no redis-server: then the peer is not measured."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    address = folder / "redis.sock"
    command = [program, "--port", "0", "--unixsocket", str(address), "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while not address.exists():
            if process.poll() is not None:
                raise RuntimeError("redis-server did not start")
        yield f"redis+socket://{address}"
    finally:
        process.terminate()
        process.wait(10)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])

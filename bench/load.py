"""A client that keeps a number of connections busy: python -m bench.load PORT SECONDS CLIENTS REQUESTS RESULT

REQUESTS is a file with one base64 HTTP request a line; connections go through them in turn. RESULT is a file of JSON:
answers per second, latencies, how many answers were not 200, and with --bodies the bodies.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import itertools
import json
import time
from pathlib import Path
from typing import cast

import uvloop


class Connection(asyncio.Protocol):
    def __init__(self, load: Load) -> None:
        self._load = load
        self._received = b""
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._send()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        if not found or len(rest) < _length(head):
            return
        self._received = b""
        self._load.note(head, rest, time.perf_counter() - self._sent_at)
        if time.perf_counter() < self._load.until:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.end_one(exc)

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(next(self._load.requests))


class Load:
    def __init__(self, requests: list[bytes], seconds: float, clients: int, *, keep_bodies: bool) -> None:
        self.requests = itertools.cycle(requests)
        self.seconds, self.clients, self.keep_bodies = seconds, clients, keep_bodies
        self.latencies: list[float] = []
        self.bodies: list[str] = []
        self.refused = 0
        self.broken = 0

    async def run(self, port: int) -> dict[str, object]:
        loop = asyncio.get_running_loop()
        self._open, self._ended = self.clients, loop.create_future()
        begun = time.perf_counter()
        self.until = begun + self.seconds
        for _ in range(self.clients):
            await loop.create_connection(lambda: Connection(self), "127.0.0.1", port)
        await self._ended
        took = time.perf_counter() - begun
        if not self.latencies:
            raise SystemExit(
                f"no request was answered with 200: {self.refused} others, {self.broken} broken connections"
            )
        ordered = sorted(self.latencies)
        return {
            "per_second": len(ordered) / took,
            "p50_ms": 1000 * ordered[len(ordered) // 2],
            "p99_ms": 1000 * ordered[len(ordered) * 99 // 100],
            "refused": self.refused,
            "broken": self.broken,
            "bodies": self.bodies,
        }

    def note(self, head: bytes, body: bytes, seconds: float) -> None:
        if not head.startswith(b"HTTP/1.1 200"):
            self.refused += 1
            return
        self.latencies.append(seconds)
        if self.keep_bodies:
            self.bodies.append(body.decode())

    def end_one(self, error: Exception | None) -> None:
        self.broken += error is not None
        self._open -= 1
        if self._open == 0:
            self._ended.set_result(None)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    raise ValueError(f"an answer without a length: {head[:200]!r}")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("port", type=int)
    arguments.add_argument("seconds", type=float)
    arguments.add_argument("clients", type=int)
    arguments.add_argument("requests", type=Path)
    arguments.add_argument("result", type=Path)
    arguments.add_argument("--bodies", action="store_true")
    given = arguments.parse_args()
    requests = [base64.b64decode(line) for line in given.requests.read_text().split()]
    load = Load(requests, given.seconds, given.clients, keep_bodies=given.bodies)
    given.result.write_text(json.dumps(uvloop.run(load.run(given.port))))


if __name__ == "__main__":
    main()

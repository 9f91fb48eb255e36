"""A client that asks at a steady pace: python -m bench.pace PORT SECONDS PER_SECOND REQUESTS

REQUESTS is a file with one base64 HTTP request a line; each is sent PER_SECOND times a second, whether the ones before
are answered or not, so that a server that hesitates is not asked less. Prints JSON: for each request its latencies in
milliseconds, counted from when it was to be sent, and what came of those that were not answered with 200.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from pathlib import Path

WITHIN = 30.0
"""Seconds for one answer; then it counts as failed, with these as its latency."""

REUSED_WITHIN = 2.0
"""Seconds after which a connection is not used again: the server closes those that are idle for 5, and a request that
crosses with that is lost without fault of either.
"""

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pace:
    def __init__(self, port: int, request: bytes) -> None:
        self._port, self._request = port, request
        self._free: list[tuple[Pair, float]] = []
        self.latencies: list[float] = []
        self.failures: list[str] = []

    async def keep(self, seconds: float, per_second: float) -> None:
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as asking:
            for number in range(int(seconds * per_second)):
                due = begun + number / per_second
                await asyncio.sleep(max(0, due - time.perf_counter()))
                asking.create_task(self._ask(due))

    async def _ask(self, due: float) -> None:
        try:
            async with asyncio.timeout(WITHIN):
                pair = await self._connection()
                status = await answer(pair, self._request)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self.failures.append(type(error).__name__)
        else:
            self._free.append((pair, time.perf_counter()))
            if status != b"200":
                self.failures.append(status.decode())
        self.latencies.append(1000 * (time.perf_counter() - due))

    async def _connection(self) -> Pair:
        while self._free:
            pair, freed_at = self._free.pop()
            if time.perf_counter() - freed_at < REUSED_WITHIN:
                return pair
            pair[1].close()
        return await asyncio.open_connection("127.0.0.1", self._port)


async def answer(pair: Pair, request: bytes) -> bytes:
    reader, writer = pair
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            await reader.readexactly(int(line[15:]))
    return head.split(b" ", 2)[1]


async def main() -> None:
    port, seconds, per_second = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    requests = [base64.b64decode(line) for line in Path(sys.argv[4]).read_text().split()]
    paces = [Pace(port, request) for request in requests]
    async with asyncio.TaskGroup() as group:
        for pace in paces:
            group.create_task(pace.keep(seconds, per_second))
    print(json.dumps([{"latencies": pace.latencies, "failures": pace.failures} for pace in paces]))


if __name__ == "__main__":
    asyncio.run(main())

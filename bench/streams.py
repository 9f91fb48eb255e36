"""How long an event takes from the line that a run prints to the clients that stream it."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

from bench.figures import Figure, quantile
from bench.served import PROJECTS, served

if TYPE_CHECKING:
    from bench.served import Served

KICKOFFS = 10
LINES_A_SECOND = 2
"""Of each of the kickoffs with many streams."""


def streams(*, seconds: float, clients: int) -> list[Figure]:
    """`clients` follow KICKOFFS kickoffs together. Then one client follows one kickoff alone."""
    with served(PROJECTS / "prints", {"WINDLASS_SLOTS": str(KICKOFFS), "WINDLASS_MAX_CONNECTIONS": "2000"}) as server:
        alone = asyncio.run(_followed(server, 1, 1, pause=0.05, seconds=seconds))
        many = asyncio.run(_followed(server, KICKOFFS, clients, pause=1 / LINES_A_SECOND, seconds=seconds))
    return [
        Figure("printed line to the client of a stream, p50 ms", f"{quantile(alone, 0.5):.1f}", "under 50"),
        Figure("  p99 ms", f"{quantile(alone, 0.99):.1f}"),
        Figure(f"{clients} streams of {KICKOFFS} kickoffs, p50 ms", f"{quantile(many, 0.5):.1f}"),
        Figure("  p99 ms", f"{quantile(many, 0.99):.1f}", "under 250"),
    ]


async def _followed(server: Served, kickoffs: int, clients: int, *, pause: float, seconds: float) -> list[float]:
    """Returns the milliseconds of each event at each client."""
    inputs = {"lines": int(seconds / pause), "pause": pause}
    ids = [await asyncio.to_thread(server.kickoff, inputs) for _ in range(kickoffs)]
    found = await asyncio.gather(*(_latencies(server, ids[number % kickoffs]) for number in range(clients)))
    return [one for times in found for one in times[1:]]  # the first one may be older than the stream


async def _latencies(server: Served, kickoff: str) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        f"GET /events/{kickoff} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
        f"Authorization: Bearer {server.token}\r\n\r\n".encode()
    )
    opened, times = time.time(), []
    while (line := await reader.readline()) and line != b"event: end\n":
        if line.startswith(b"data: "):
            printed = float(json.loads(line[6:])["payload"].get("line", "nan"))
            if printed > opened:
                times.append(1000 * (time.time() - printed))
    writer.close()
    return times

"""What a network of its own costs a run: the time to its first statement, and the speed of a download."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from bench.figures import Figure, quantile
from bench.latency import WARM_UP, ms
from bench.served import PROJECTS, served

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 100_000_000
PIECE = 1 << 20
GOAL_STATEMENT = "at most 5 more"
GOAL_SPEED = "at least 0.5"


def egress(*, kickoffs: int, downloads: int) -> list[Figure]:
    """With the default egress and without one: two servers, whose kickoffs take turns."""
    project = PROJECTS / "download"
    starts: dict[str, list[float]] = {"unrestricted": [], "open": []}
    speeds: dict[str, list[float]] = {"unrestricted": [], "open": []}
    with ExitStack() as stack:
        port = stack.enter_context(source())
        permitted = {"unrestricted": "unrestricted", "open": f"open,127.0.0.1:{port}"}
        servers = {
            egress: stack.enter_context(served(project, {"WINDLASS_EGRESS": own})) for egress, own in permitted.items()
        }
        for number in range(kickoffs + WARM_UP):
            for egress, server in servers.items():
                status = server.succeeded(server.kickoff({}))
                if number >= WARM_UP:
                    starts[egress].append(ms(status["result"]["json"]["first_statement"], status))
        for _ in range(downloads):
            for egress, server in servers.items():
                seconds = server.succeeded(server.kickoff({"port": port}))["result"]["json"]["seconds"]
                speeds[egress].append(SIZE / 1e6 / seconds)
    direct, through = quantile(speeds["unrestricted"], 0.5), quantile(speeds["open"], 0.5)
    more = quantile(starts["open"], 0.5) - quantile(starts["unrestricted"], 0.5)
    return [
        Figure("accept to the first statement, egress open, p50 ms", f"{quantile(starts['open'], 0.5):.1f}"),
        Figure("  egress unrestricted", f"{quantile(starts['unrestricted'], 0.5):.1f}"),
        Figure("  more with open", f"{more:.1f}", GOAL_STATEMENT),
        Figure("download of 100 MB from this machine, egress open, MB/s", f"{through:.0f}"),
        Figure("  egress unrestricted", f"{direct:.0f}"),
        Figure("  ratio", f"{through / direct:.2f}", GOAL_SPEED),
    ]


@contextmanager
def source() -> Iterator[int]:
    """A server in another thread that sends SIZE bytes to each connection. Yields its port."""
    loop, ready, ports = asyncio.new_event_loop(), threading.Event(), list[int]()

    async def send(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(0, SIZE, PIECE):
            writer.write(bytes(PIECE))
            await writer.drain()
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(send, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()

    def run() -> None:
        loop.run_until_complete(serve())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait(30)
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

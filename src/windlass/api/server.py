"""The HTTP server: uvicorn with limits on connections and on the time of requests."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from windlass.aio import set_within
from windlass.api.application import TrustedProxies, sources
from windlass.api.connections import (
    IDLE_SECONDS,
    ConnectionLimits,
    Connections,
    TimeoutProtocol,
    limit_unsent_data,
    refuse_connections,
)
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from starlette.types import ASGIApp


ACCEPTING_SECONDS = 0.1
"""Time for the last connections of the listening socket to be accepted."""
UNUSED_SECONDS = 1.0
"""Time for a proxy to use the connections that it keeps. A response closes each. The rest are closed afterwards."""
LOOK_SECONDS = 0.02
TICKS = 10
"""Ticks of uvicorn between two checks of the connections. Ten ticks are one second."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            self._connections.abort_stalled(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Leaves signals to the command, because it stops more than this server."""
        return nullcontext()


class HttpServer:
    """Serves one ASGI application on one address. `start` returns when the server accepts requests. `stop` returns when
    the last request is answered or aborted.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        trusted_proxies: list[str] | None = None,
        headers_within: float = 20.0,
        limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 - it is immutable
    ) -> None:
        trusted = TrustedProxies(app, trusted_proxies) if trusted_proxies else None
        self._connections = Connections(limits, sources(trusted))
        protocol = type("Protocol", (TimeoutProtocol,), {"within": headers_within, "guard": self._connections})
        config = uvicorn.Config(
            trusted or app,
            host=host,
            port=port,
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=3,
            backlog=2048,
            timeout_keep_alive=IDLE_SECONDS,
        )
        self._server = _Server(config, self._connections)
        self._address = (host, port)
        self._taken_within = limits.taken_within
        self._serving: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """Returns the port that the server listens on. Valid only after `start`."""
        return int(self._server.servers[0].sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """Returns the number of open connections."""
        return len(self._connections)

    async def start(self) -> None:
        """Raises WindlassError if the server can't listen on the address."""
        self._listening = _bound(self._server.config, self._address)
        limit_unsent_data(self._listening, self._taken_within)
        self._serving = asyncio.create_task(self._server.serve([self._listening]), name="http server")
        while not self._server.started and not self._serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)

    def leave(self) -> None:
        """Lets each response close its connection, because this server stops soon."""
        self._connections.closing = True

    async def drain(self, within: float, stop_now: asyncio.Event) -> None:
        """Accepts no more connections, and returns when all requests are answered, after `within` seconds in any case.

        Loses no connection that a client has made, and closes none on which a request arrives.
        """
        if self._serving is None or stop_now.is_set():
            return
        self.leave()
        clock = asyncio.get_running_loop()
        began = clock.time()
        refuse_connections(self._listening)
        await set_within(stop_now, ACCEPTING_SECONDS)
        for server in self._server.servers:
            server.close()
        while len(self._connections) and clock.time() - began < within and not stop_now.is_set():
            if clock.time() - began >= UNUSED_SECONDS:
                self._connections.close_unused()
            await set_within(stop_now, LOOK_SECONDS)

    async def stop(self) -> None:
        if self._serving:
            self._server.should_exit = True
            await self._serving
            self._connections.abort_all()  # clients that have not received their responses by now
            self._serving = None


def check_free(host: str, port: int) -> None:
    """Raises WindlassError when a server could not listen there now. Port 0 is always free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as `_bind` does
            probe.bind((host, port))
    except OSError as error:
        raise _unusable(host, port, error) from error


def _bound(config: uvicorn.Config, address: tuple[str, int]) -> socket.socket:
    try:
        return _bind(*address, backlog=config.backlog)
    except OSError as error:
        raise _unusable(*address, error) from error


def _unusable(host: str, port: int, error: OSError) -> WindlassError:
    holder = holder_of(port) if error.errno == errno.EADDRINUSE else None
    held = f" The process {holder} listens there." if holder else ""
    hints = {
        errno.EADDRINUSE: f"Stop the program that listens there, or choose another port: `--port {port + 1}` or "
        "WINDLASS_PORT. A second server of Windlass also needs a home of its own: WINDLASS_HOME.",
        errno.EACCES: "Choose a port of 1024 or more with `--port` or WINDLASS_PORT, which needs no rights of root.",
    }
    return WindlassError(
        f"The server can't listen on {host}:{port}: {error.strerror or error}.{held}",
        hints.get(error.errno or 0, "Choose another address with `--host` or WINDLASS_HOST."),
    )


LISTENING = "0A"
"""The state of a listening socket in /proc/net/tcp."""


def holder_of(port: int, proc: Path = Path("/proc")) -> str | None:
    """Returns number and name of the process that listens on a port, None if this system or this user can't see it."""
    sockets = {f"socket:[{inode}]" for table in ("tcp", "tcp6") for inode in _listening(proc / "net" / table, port)}
    if not sockets:
        return None
    for process in (path for path in proc.glob("[0-9]*") if path.name.isdecimal()):
        with suppress(OSError):  # of another user, or ended
            if any(_leads_to(one, sockets) for one in (process / "fd").iterdir()):
                return f"{process.name} ({(process / 'comm').read_text('utf-8', 'replace').strip()})"
    return None


def _leads_to(descriptor: Path, sockets: set[str]) -> bool:
    try:
        return str(descriptor.readlink()) in sockets
    except OSError:  # it was closed meanwhile
        return False


def _listening(table: Path, port: int) -> list[str]:
    """Returns the inodes of the sockets in a table of /proc/net that listen on the port."""
    try:
        rows = [line.split() for line in table.read_text("ascii").splitlines()[1:]]
    except OSError:
        return []
    return [row[9] for row in rows if row[3] == LISTENING and int(row[1].rpartition(":")[2], 16) == port]


def _bind(host: str, port: int, *, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.create_server((host, port), family=family, backlog=backlog, reuse_port=False)
    # uvloop sets it on accepted connections, asyncio does not. Without it, a body waits 40 ms for the ACK of its head.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bound.setblocking(False)
    return bound

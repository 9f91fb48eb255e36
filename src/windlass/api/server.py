from __future__ import annotations

import asyncio
import socket
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from windlass.errors import WindlassError

if TYPE_CHECKING:
    from starlette.types import ASGIApp


class PunctualProtocol(HttpToolsProtocol):
    """Closes a connection whose request headers do not arrive in time; the body has its own deadline in bodies.py."""

    headers_within = 20.0
    _headers_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_headers()

    def on_message_begin(self) -> None:
        self._await_headers()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        self._stop_waiting()
        self._headers_timer = self.loop.call_later(self.headers_within, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._headers_timer:
            self._headers_timer.cancel()
            self._headers_timer = None


class _Server(uvicorn.Server):
    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Signals are the command's: it stops more than this server."""
        return nullcontext()


class HttpServer:
    """One ASGI application on one address; `start` returns when it takes requests, `stop` when the last is answered or
    cut off.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        trusted_proxies: list[str] | None = None,
        headers_within: float = 20.0,
    ) -> None:
        protocol = type("Protocol", (PunctualProtocol,), {"headers_within": headers_within})
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            forwarded_allow_ips=trusted_proxies or [],
            timeout_graceful_shutdown=3,
            backlog=2048,
        )
        self._server = _Server(config)
        self._address = (host, port)
        self._serving: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port that was taken; meaningful once started."""
        return int(self._server.servers[0].sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Raises WindlassError when the address is taken."""
        listening = _bound(self._server.config, self._address)
        self._serving = asyncio.create_task(self._server.serve([listening]), name="http server")
        while not self._server.started and not self._serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        if self._serving:
            self._server.should_exit = True
            await self._serving
            self._serving = None


def _bound(config: uvicorn.Config, address: tuple[str, int]) -> socket.socket:
    try:
        return _bind(*address, backlog=config.backlog)
    except OSError as error:
        host, port = address
        raise WindlassError(
            f"The server can't listen on {host}:{port}: {error.strerror or error}.",
            "Stop what listens there, or choose another port: `--port 8001` or WINDLASS_PORT.",
        ) from error


def _bind(host: str, port: int, *, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.create_server((host, port), family=family, backlog=backlog, reuse_port=False)
    bound.setblocking(False)
    return bound

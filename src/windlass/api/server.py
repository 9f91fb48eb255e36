from __future__ import annotations

import asyncio
import socket
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import uvicorn

from windlass.api.proxies import TrustedProxies
from windlass.api.punctual import PunctualProtocol
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from starlette.types import ASGIApp


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
        protocol = type("Protocol", (PunctualProtocol,), {"within": headers_within})
        config = uvicorn.Config(
            TrustedProxies(app, trusted_proxies) if trusted_proxies else app,
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
    # uvloop does it for what it accepts, asyncio does not: then a body waits 40 ms for its head to be confirmed
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bound.setblocking(False)
    return bound

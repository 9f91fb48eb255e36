from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class TrustedProxies:
    """Believes X-Forwarded-For, -Proto and -Host of these addresses, and of no others."""

    def __init__(self, app: ASGIApp, addresses: list[str]) -> None:
        self._inner = ProxyHeadersMiddleware(app, trusted_hosts=addresses)  # type: ignore[arg-type]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if client and client[0] in self._inner.trusted_hosts:
            scope["headers"] = _with_forwarded_host(scope["headers"])
        await self._inner(scope, receive, send)  # type: ignore[arg-type]


def _with_forwarded_host(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Of several hosts the last counts: it is the trusted proxy's own word."""
    given = b",".join(value for name, value in headers if name == b"x-forwarded-host")
    host = given.rpartition(b",")[2].strip()
    return [(b"host", host), *(header for header in headers if header[0] != b"host")] if host else headers

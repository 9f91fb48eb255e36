from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request

Check = Callable[[], Awaitable[bool]]


def health_routes(checks: dict[str, Check]) -> list[Route]:
    """`checks` are what must hold for the server to be ready, by name; they run at each request."""

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> Response:
        found = {name: "ok" if await check() else "failing" for name, check in checks.items()}
        well = all(state == "ok" for state in found.values())
        return JSONResponse({"status": "ok" if well else "failing", "checks": found}, 200 if well else 503)

    return [Route("/health", health, methods=["GET"]), Route("/ready", ready, methods=["GET"])]

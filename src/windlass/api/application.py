from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import Route, Router

from windlass.api.problems import Problem, problem_of, stopping, unexpected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.types import Message, Receive, Scope, Send

    from windlass.api.addresses import Addresses
    from windlass.api.crew import CrewApi


class Application:
    """The ASGI application: finds the crew that an address means, and makes every error an answer of the one form."""

    def __init__(
        self,
        crew: CrewApi,
        server: Sequence[Route],
        addresses: Addresses,
        *,
        public_url: str | None = None,
    ) -> None:
        self._crew = Router(crew.routes(), redirect_slashes=False)
        self._server = Router(server, redirect_slashes=False)
        self._addresses = addresses
        self._public_url = public_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = _Answer(send)
        try:
            await self._route(scope, receive, answer.send)
        except ClientDisconnect:
            return
        except asyncio.CancelledError:  # by the HTTP server, when it has waited long enough for the last requests
            await answer.give(stopping(), scope, receive)
        except Exception as error:  # noqa: BLE001 - the last handler: whatever happened, the client gets an answer
            await answer.give(problem_of(error) or unexpected(error, scope["method"], scope["path"]), scope, receive)

    def base_url(self, request: Request) -> str:
        """Of the crew that the request is for, without a slash at the end."""
        place, scheme = request.scope["place"], request.scope["scheme"]
        server = self._public_url
        if place.by_host or server is None:
            scheme = urlsplit(server).scheme if server else scheme
            server = f"{scheme}://{request.headers.get('host', 'localhost')}"
        return f"{server}{place.prefix}"

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = self._addresses.find(_host(scope), scope["path"])
        router = self._server if place.slug is None else self._crew
        inner = {**scope, "path": place.path, "root_path": "", "app": self, "place": place}
        await router(inner, receive, send)


class _Answer:
    def __init__(self, send: Callable[[Message], Awaitable[None]]) -> None:
        self._send = send
        self.begun = False

    async def send(self, message: Message) -> None:
        self.begun = True
        await self._send(message)

    async def give(self, problem: Problem, scope: Scope, receive: Receive) -> None:
        """Unless an answer has begun: then its end is missing, and the HTTP server cuts the connection."""
        if not self.begun:
            await JSONResponse(problem.body(), problem.status, problem.headers)(scope, receive, self.send)


def _host(scope: Scope) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")

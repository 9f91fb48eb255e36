from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import Route, Router

from windlass import log
from windlass.api.problems import Problem, problem_of, server_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.types import Message, Receive, Scope, Send

    from windlass.api.addresses import Addresses, Place
    from windlass.api.crew import CrewApi

logger = log.logger(__name__)


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
        except Exception as error:  # noqa: BLE001 - the last handler: whatever happened, the client gets an answer
            await self._tell(error, scope, receive, answer)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        place = self._addresses.find(headers.get("host", ""), scope["path"])
        router = self._server if place.slug is None else self._crew
        inner = dict(scope)
        inner |= {"path": place.path, "root_path": "", "app": self, "slug": place.slug, "prefix": place.prefix}
        inner["base_url"] = self._base_url(scope, headers, place)
        await router(inner, receive, send)

    def _base_url(self, scope: Scope, headers: Headers, place: Place) -> str:
        server = self._public_url or f"{scope['scheme']}://{headers.get('host', 'localhost')}"
        return f"{server}{place.prefix}"

    async def _tell(self, error: Exception, scope: Scope, receive: Receive, answer: _Answer) -> None:
        problem = problem_of(error) or _unexpected(error, scope)
        if not answer.begun:
            await JSONResponse(problem.body(), problem.status, problem.headers)(scope, receive, answer.send)


class _Answer:
    def __init__(self, send: Callable[[Message], Awaitable[None]]) -> None:
        self._send = send
        self.begun = False

    async def send(self, message: Message) -> None:
        self.begun = True
        await self._send(message)


def _unexpected(error: Exception, scope: Scope) -> Problem:
    """Its message and its trace are for the log alone."""
    reference = secrets.token_hex(6)
    logger.event("request.failed", reference=reference, method=scope["method"], path=scope["path"], exc=error)
    return server_error(reference)

"""The two documents of the OIDC issuer. Providers fetch them without a token, and no database is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from windlass.access.authentication import Rate, TooManyRequests
from windlass.api.client_addresses import source_of_request
from windlass.api.errors import Problem
from windlass.secrets.provider import NoIssuer

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from windlass.deployments.identity import Identity

REQUESTS_A_SECOND, BURST = 20, 200
"""Of one address."""
CACHED = {"Cache-Control": "public, max-age=300"}


@dataclass(frozen=True, slots=True)
class Oidc:
    identity: Identity
    _rate: Rate[str] = field(default_factory=lambda: Rate(REQUESTS_A_SECOND, BURST))

    def routes(self) -> list[Route]:
        return [
            Route("/.well-known/openid-configuration", self.discovery, methods=["GET"]),
            Route("/oauth2/jwks", self.jwks, methods=["GET"]),
        ]

    async def discovery(self, request: Request) -> Response:
        return self._answer(request, self.identity.discovery)

    async def jwks(self, request: Request) -> Response:
        return self._answer(request, self.identity.jwks)

    def _answer(self, request: Request, document: Callable[[], dict[str, Any]]) -> Response:
        source = source_of_request(request.scope)
        if source.limited and (seconds := self._rate.take(source.name)):
            raise TooManyRequests(
                f"Your address sends more than {REQUESTS_A_SECOND} requests a second for this document.",
                "Cache the document for five minutes.",
                seconds,
            )
        try:
            found = document()
        except NoIssuer as error:
            raise Problem(503, str(error)) from None
        is_empty = found.get("keys") == []  # the first key comes with the first token
        return JSONResponse(found, headers={} if is_empty else CACHED)

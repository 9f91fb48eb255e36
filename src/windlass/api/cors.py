"""Cross-origin requests (CORS): web pages of the origins in a crew's setting `cors_origins` may use its API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import Scope

Headers = list[tuple[bytes, bytes]]

ALL = "*"
METHODS = "GET, POST, DELETE"
REQUEST_HEADERS = "Authorization, Content-Type, Idempotency-Key, If-None-Match, If-Range, Range"
RESPONSE_HEADERS = "Content-Disposition, Content-Range, ETag, Retry-After"
SECONDS_KEPT = 600
"""Seconds for which a browser keeps the answer to a preflight request."""


def origin_of(scope: Scope) -> str | None:
    """Returns the origin of the page that sends the request, None for a request without one."""
    for name, value in scope["headers"]:
        if name == b"origin":
            return bytes(value).decode("latin-1")
    return None


def permission(origin: str, allowed: Collection[str]) -> Headers:
    """Returns the response headers that permit a page of this origin to read the response, or no headers."""
    if ALL in allowed:
        permitted = ALL
    elif origin in allowed:
        permitted = origin
    else:
        return []
    return [
        (b"access-control-allow-origin", permitted.encode()),
        (b"access-control-expose-headers", RESPONSE_HEADERS.encode()),
        (b"vary", b"Origin"),
    ]


def is_preflight(scope: Scope) -> bool:
    """Returns whether the browser asks if a page may send a request. It sends no token with this question."""
    return scope["method"] == "OPTIONS" and any(
        name == b"access-control-request-method" for name, _ in scope["headers"]
    )


def preflight_response() -> Response:
    """Returns the answer to a preflight request of a permitted origin."""
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Methods": METHODS,
            "Access-Control-Allow-Headers": REQUEST_HEADERS,
            "Access-Control-Max-Age": str(SECONDS_KEPT),
        },
    )

"""Every error of the API as a value, and the one body that they all have."""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from windlass import log
from windlass.errors import DatabaseUnavailable
from windlass.lifecycle.accept import IdempotencyKeyReused, KeyInUse, QueueFull

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = log.logger(__name__)

TITLES: dict[int, str] = {
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    422: "Validation Error",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Server Error",
    503: "Service Unavailable",
}
RETRY_AFTER = 2
"""Seconds after which a client may ask again when the database is away."""
LONGEST_SLUG = 63


class Problem(Exception):  # noqa: N818 - what went wrong is the client's
    """An answer that is no success. `message` says what to do; `details` are facts for programs."""

    def __init__(
        self, status: int, message: str, details: dict[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.details = details or {}
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        return {"error": TITLES[self.status], "message": self.message, "details": self.details}


def bad_request(message: str, **details: Any) -> Problem:
    return Problem(400, message, details)


def unauthorized() -> Problem:
    message = (
        "The request needs a valid token of this crew: send the header `Authorization: Bearer <token>`. "
        "`windlass tokens show` prints the crew's tokens."
    )
    return Problem(401, message, headers={"WWW-Authenticate": "Bearer"})


def no_such_kickoff() -> Problem:
    """The same for an unknown one, a malformed id and somebody else's: it must not tell which."""
    return Problem(404, "There is no kickoff with this id here. Check the kickoff_id that POST /kickoff returned.")


def no_such_crew(slug: str) -> Problem:
    return Problem(404, f"There is no crew {slug[:LONGEST_SLUG]!r} on this server. Check the base URL.")


def too_large(limit: int) -> Problem:
    return Problem(
        413, f"The body is larger than {limit} bytes. Send less, or raise WINDLASS_MAX_BODY.", {"limit": limit}
    )


def too_slow(seconds: float) -> Problem:
    return Problem(
        408, f"The request did not arrive within {seconds:g} s. Send it again.", headers={"Connection": "close"}
    )


def head_too_large(limit: int) -> Problem:
    return Problem(431, "The request's first line and headers are too long. Send shorter ones.", {"limit": limit})


def no_http() -> Problem:
    return bad_request("What arrived is no HTTP request that can be read. Check its first line and its headers.")


def stopping() -> Problem:
    headers = {"Retry-After": str(RETRY_AFTER), "Connection": "close"}
    return Problem(503, "The server is stopping. Send the request again.", headers=headers)


def database_away() -> Problem:
    """What was asked may have been done, when only its answer was lost."""
    message = (
        "The database is away for now. Send the request again; with an idempotency key, a kickoff can't start twice."
    )
    return Problem(503, message, headers={"Retry-After": str(RETRY_AFTER)})


def unexpected(error: Exception, method: str, path: str) -> Problem:
    """Its message and its trace are for the log alone."""
    reference = secrets.token_hex(6)
    logger.event("request.failed", reference=reference, method=method, path=path, exc=error)
    return Problem(500, f"Something went wrong here. The server's log says what, under the reference {reference}.")


def problem_of(error: Exception) -> Problem | None:
    """The answer for an error that has one; None for one that should not happen."""
    match error:
        case Problem():
            return error
        case DatabaseUnavailable():
            return database_away()
        case HTTPException(status_code=404):
            return Problem(404, "There is nothing at this path. `GET {base_url}/openapi.json` lists what there is.")
        case HTTPException(status_code=405):
            return _wrong_method(error.headers or {})
    return _not_accepted(error)


def _not_accepted(error: Exception) -> Problem | None:
    match error:
        case IdempotencyKeyReused():
            return Problem(409, str(error))
        case KeyInUse():
            return Problem(409, str(error), {"kickoff_id": str(error.kickoff_id)} if error.kickoff_id else {})
        case QueueFull():
            return _queue_full(error)
    return None


def _queue_full(error: QueueFull) -> Problem:
    details = {"waiting": error.waiting, "max_waiting": error.max_waiting}
    return Problem(429, str(error), details, {"Retry-After": str(math.ceil(error.retry_after))})


def _wrong_method(headers: Mapping[str, str]) -> Problem:
    allowed = ", ".join(sorted(headers.get("Allow", "").split(", ")))
    return Problem(405, f"This path takes {allowed}.", headers={"Allow": allowed})

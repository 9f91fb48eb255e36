"""The errors of the API as values. All have a body of the same form."""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from windlass import log
from windlass.access.authentication import TokenEnded, TooManyRequests
from windlass.errors import DatabaseUnavailable
from windlass.lifecycle.accept import IdempotencyKeyReused, KeyInUse, QueueFull
from windlass.lifecycle.approvals import AnsweredBefore, InvalidAnswer, NotWaiting
from windlass.lifecycle.event_streams import TooManyStreams

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from windlass.rights import Role, Scope

logger = log.logger(__name__)

TITLES: dict[int, str] = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    416: "Range Not Satisfiable",
    421: "Misdirected Request",
    422: "Validation Error",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Server Error",
    503: "Service Unavailable",
}
RETRY_AFTER = 2
"""Seconds after which a client may repeat a request that got 503, or 429 for too many connections."""
RETRY_STREAM_AFTER = 10
LONGEST_SLUG = 63
DEFAULT_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
"""Headers of every response that does not set them itself. A response is for one client at one time."""


class Problem(Exception):  # noqa: N818 - most problems are errors of the client
    """An error response. `message` describes the error and what to do; `details` holds facts for programs."""

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


def invalid_signature() -> Problem:
    message = (
        "The signature of this address is not valid. Send the answer to the `callback_url` of the webhook, unchanged."
    )
    return Problem(401, message, headers={"WWW-Authenticate": "Bearer"})


def forbidden(scope: Scope, *, possible: bool) -> Problem:
    """Returns the Problem for a token without `scope`. `possible` is false if the token's kind can't have the scope."""
    message = (
        f"This operation needs the scope `{scope}`, and the token does not have it. "
        f"`windlass tokens create --scope {scope}` creates a token with it."
        if possible
        else f"This operation needs an organization token with the scope `{scope}`. A user token can't have this scope."
    )
    return Problem(403, message, {"required_scope": str(scope)})


def forbidden_by_role(scope: Scope, role: Role | None) -> Problem:
    """Returns the Problem for a personal token whose user's role does not include the scope."""
    message = (
        f"This operation needs the scope `{scope}`, and the role {role or 'of the user'} does not include it. An owner "
        "changes the role with: windlass admin users change NAME --role ROLE"
    )
    return Problem(403, message, {"required_scope": str(scope)})


def no_such_kickoff() -> Problem:
    """Returns the same Problem for an unknown id, a malformed id and the kickoff of another user: the response must not
    reveal which.
    """
    return Problem(404, "There is no kickoff with this id here. Check the kickoff_id that POST /kickoff returned.")


def no_such_task(task: str) -> Problem:
    """Returns the Problem for an answer to a task that the kickoff does not have."""
    return Problem(
        404,
        f"The kickoff has no task or question {task[:LONGEST_SLUG]!r}. `human_input` in its status has the `task_id`.",
    )


def not_waiting(kickoff: UUID, *, ended: bool) -> Problem:
    """Returns the Problem for an answer that nothing waits for."""
    why = "It has ended." if ended else "Its status has the state PENDING_HUMAN_INPUT while it does."
    return bad_request(f"Kickoff {kickoff} does not wait for an answer. {why}")


def no_approver() -> Problem:
    message = "This token or user may not answer the questions of this crew. Its setting `approvers` names who may."
    return Problem(403, message)


def no_such_file() -> Problem:
    return Problem(404, "The kickoff has no file with this path. GET /files/{kickoff_id} lists its files.")


def no_such_range(size: int) -> Problem:
    message = f"The file has {size} bytes, and the requested range is not in it. Request a range below its size."
    return Problem(416, message, {"size": size}, {"Content-Range": f"bytes */{size}"})


def not_ended(kickoff: UUID, *, stopping: bool) -> Problem:
    """Returns the Problem for the deletion of a kickoff that is still open."""
    hint = (
        "It is being stopped: send the request again."
        if stopping
        else f"Stop it first with POST /stop/{kickoff}, or send the request with ?stop=true."
    )
    return Problem(409, f"Kickoff {kickoff} has not ended. {hint}", {"kickoff_id": str(kickoff)})


def no_such_crew(slug: str) -> Problem:
    return Problem(404, f"There is no crew {slug[:LONGEST_SLUG]!r} on this server, or it has no version yet.")


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


def unclear_path() -> Problem:
    return bad_request(
        "The path has an encoded slash, backslash or dot, or a segment `.` or `..`. A proxy may read such a path in "
        "another way than the server. Send the path as the documentation shows it."
    )


def unknown_host() -> Problem:
    """Returns the Problem for a host name that is not allowed. It does not repeat the name: anybody can choose it."""
    return Problem(
        421,
        "The server does not accept the host name of the request. Use its IP address, or add the name to "
        "WINDLASS_ALLOWED_HOSTS where the server is started.",
    )


def two_hosts() -> Problem:
    return bad_request("The request has more than one Host header. Send one.")


def no_host() -> Problem:
    return bad_request("The request has no Host header, which HTTP/1.1 needs. Send one.")


def another_host() -> Problem:
    return bad_request("The Host header differs from the host in the first line of the request. Send the same.")


def too_many_connections(limit: int) -> Problem:
    return Problem(
        429,
        f"Your address has {limit} connections to this server, which is the limit. Close some, or raise "
        "WINDLASS_MAX_CONNECTIONS_PER_ADDRESS.",
        {"max_connections": limit},
        {"Retry-After": str(RETRY_AFTER)},
    )


def server_full() -> Problem:
    message = "The server has reached its limit of connections. Send the request again."
    return Problem(503, message, headers={"Retry-After": str(RETRY_AFTER)})


def not_http() -> Problem:
    return bad_request("The server can't parse the HTTP request. Check its first line and its headers.")


def stopping() -> Problem:
    headers = {"Retry-After": str(RETRY_AFTER), "Connection": "close"}
    return Problem(503, "The server is stopping. Send the request again.", headers=headers)


def starting() -> Problem:
    headers = {"Retry-After": str(RETRY_AFTER)}
    return Problem(503, "The server is starting. Send the request again; `/ready` has the reason.", headers=headers)


def database_unavailable() -> Problem:
    """Returns the Problem for a lost database. The request may have taken effect if only its answer was lost."""
    message = (
        "The database is unavailable. Send the request again; with an idempotency key, a kickoff can't start twice."
    )
    return Problem(503, message, headers={"Retry-After": str(RETRY_AFTER)})


def too_many_large_answers() -> Problem:
    message = (
        "The server has no more room for large responses that are being sent. Send the request again, "
        "or raise WINDLASS_LARGE_ANSWERS."
    )
    return Problem(503, message, headers={"Retry-After": str(RETRY_AFTER)})


def unexpected(error: Exception, method: str, path: str) -> Problem:
    """Logs the error with its traceback. Returns a Problem that holds only a reference to the log line."""
    reference = secrets.token_hex(6)
    logger.event("request.failed", reference=reference, method=method, path=path, exc=error)
    return Problem(500, f"The server failed to process the request. Search its log for the reference {reference}.")


def problem_of(error: Exception) -> Problem | None:
    """Returns the Problem for an expected error, and None for an unexpected one."""
    match error:
        case Problem():
            return error
        case DatabaseUnavailable():
            return database_unavailable()
        case TokenEnded():
            return Problem(401, str(error), headers={"WWW-Authenticate": "Bearer"})
        case HTTPException(status_code=404):
            return Problem(
                404,
                "There is nothing at this path. `/openapi.json` below the base URL of a crew lists its paths, and "
                "`/api/v1/openapi.json` those of the control API.",
            )
        case HTTPException(status_code=405):
            return wrong_method(error.headers or {})
    return _not_accepted(error)


def _not_accepted(error: Exception) -> Problem | None:
    match error:
        case IdempotencyKeyReused() | AnsweredBefore():
            return Problem(409, str(error))
        case NotWaiting() | InvalidAnswer():
            return bad_request(str(error))
        case KeyInUse():
            return Problem(409, str(error), {"kickoff_id": str(error.kickoff_id)} if error.kickoff_id else {})
        case QueueFull():
            return _queue_full(error)
        case TooManyStreams() | TooManyRequests():
            seconds = math.ceil(error.retry_after) if isinstance(error, TooManyRequests) else RETRY_STREAM_AFTER
            return Problem(429, str(error), headers={"Retry-After": str(seconds)})
    return None


def _queue_full(error: QueueFull) -> Problem:
    ending = "_of_user" if error.of_user else ""
    details = {f"waiting{ending}": error.waiting, f"max_waiting{ending}": error.max_waiting}
    return Problem(429, str(error), details, {"Retry-After": str(math.ceil(error.retry_after))})


def wrong_method(headers: Mapping[str, str]) -> Problem:
    allowed = ", ".join(sorted(headers.get("Allow", "").split(", ")))
    return Problem(405, f"This path takes {allowed}.", headers={"Allow": allowed})

"""The errors of the client.

CrewError              `message`: what happened, `hint`: what to do, `status`: the status code, None without an answer
├── Unreachable        the server did not answer
├── Refused            an answer without success; `details` holds the server's facts
│   ├── InvalidRequest    400, 413, 422, or refused by the client: repeating it does not help
│   ├── Unauthorized      401
│   ├── Forbidden         403: `required_scope` is the scope that the token does not have
│   ├── NotFound          404
│   ├── Conflict          409
│   └── NotACrew          the answer is not that of a crew
├── KickoffFailed      the kickoff failed; `kickoff` is its status
└── StillRunning       the kickoff has not ended within the timeout; `kickoff` is its last known status
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Mapping

TEMPORARY = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
"""Status codes after which the same request may succeed later."""


class CrewError(WindlassError):
    status: int | None = None
    retry_after = 0.0
    """Seconds to wait before the next request, as the server asks in `Retry-After`."""

    @property
    def may_pass(self) -> bool:
        """Returns whether the same request may succeed later."""
        return False


class Unreachable(CrewError):  # noqa: N818 - the name describes the server
    """The server did not answer. `was_sent` is false if the request certainly did not reach the server."""

    def __init__(self, message: str, hint: str = "", *, was_sent: bool = True) -> None:
        super().__init__(message, hint)
        self.was_sent = was_sent

    @property
    def may_pass(self) -> bool:
        return True


class Refused(CrewError):  # noqa: N818 - the name describes the request
    status: int

    def __init__(
        self,
        status: int,
        message: str,
        hint: str = "",
        *,
        details: Mapping[str, Any] | None = None,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message, hint)
        self.status = status
        self.details = dict(details or {})
        self.retry_after = retry_after

    @property
    def may_pass(self) -> bool:
        return self.status in TEMPORARY


class InvalidRequest(Refused):
    """The request is invalid. The client also raises it, with status 400, for a request that no server would accept."""


class Unauthorized(Refused):
    pass


class Forbidden(Refused):
    @property
    def required_scope(self) -> str | None:
        """Returns the scope that the token does not have, or None if the server does not name it."""
        found = self.details.get("required_scope")
        return found if isinstance(found, str) else None


class NotFound(Refused):
    pass


class Conflict(Refused):
    pass


class NotACrew(Refused):
    pass


_OF_STATUS: dict[int, type[Refused]] = {
    HTTPStatus.BAD_REQUEST: InvalidRequest,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: InvalidRequest,
    HTTPStatus.UNPROCESSABLE_ENTITY: InvalidRequest,
    HTTPStatus.UNAUTHORIZED: Unauthorized,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
}


def refused(status: int, message: str, hint: str, details: Mapping[str, Any], retry_after: float) -> Refused:
    return _OF_STATUS.get(status, Refused)(status, message, hint, details=details, retry_after=retry_after)

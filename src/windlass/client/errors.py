"""
CrewError              `message` says what happened, `hint` what to do, `status` is the answer's, None without one
├── Unreachable        no answer came
├── Refused            any answer but a success; `details` are the server's facts
│   ├── InvalidRequest    400, 413, 422, or not sent at all: it stays wrong until the request changes
│   ├── Unauthorized      401
│   ├── NotFound          404
│   ├── Conflict          409
│   └── NotACrew          something else answers at this address
├── KickoffFailed      the kickoff came to a bad end; `kickoff` tells which
└── StillRunning       it has not ended in the time that was given; `kickoff` is how it stood
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Mapping

AWAY = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
"""Answers after which the same request may succeed a little later."""


class CrewError(WindlassError):
    status: int | None = None
    retry_after = 0.0
    """Seconds that the server asks to be left alone."""

    @property
    def may_pass(self) -> bool:
        """The same request may succeed a little later."""
        return False


class Unreachable(CrewError):  # noqa: N818 - said of the server
    """`was_sent` is false where the request certainly did not reach the server."""

    def __init__(self, message: str, hint: str = "", *, was_sent: bool = True) -> None:
        super().__init__(message, hint)
        self.was_sent = was_sent

    @property
    def may_pass(self) -> bool:
        return True


class Refused(CrewError):  # noqa: N818 - said of the request
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
        return self.status in AWAY


class InvalidRequest(Refused):
    """Also of what is not sent at all, because no server would take it; its status is 400 then."""


class Unauthorized(Refused):
    pass


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
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
}


def refused(status: int, message: str, hint: str, details: Mapping[str, Any], retry_after: float) -> Refused:
    return _OF_STATUS.get(status, Refused)(status, message, hint, details=details, retry_after=retry_after)

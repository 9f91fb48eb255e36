"""A client of a crew's API for the commands, with their errors and exit codes. It uses windlass.client."""

from __future__ import annotations

import json
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from windlass.cli.exit_codes import OUT_OF_REACH, REFUSED_BY_SERVER
from windlass.client import AsyncCrew, CrewError, Refused, errors, protocol, requests
from windlass.client.event_stream import EventFollower, followed
from windlass.client.transport import Transport
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from windlass.client import Event, File
    from windlass.client.requests import Request
    from windlass.secrets.secret import Secret

DOWNLOAD_SECONDS = 60.0
"""How long a download retries while the server is not available."""

__all__ = ["CrewClient", "RequestRefused", "Unreachable", "cli_errors"]


class Unreachable(WindlassError):  # noqa: N818 - a state of the server
    """The server can't be reached. `cause` is the error of windlass.client."""

    exit_code = OUT_OF_REACH

    def __init__(self, cause: CrewError, hint: str = "", *, message: str = "") -> None:
        super().__init__(message or cause.message, hint)
        self.cause = cause


class RequestRefused(WindlassError):  # noqa: N818 - an answer of the server
    exit_code = REFUSED_BY_SERVER

    def __init__(self, cause: Refused, hint: str) -> None:
        super().__init__(cause.message, hint)
        self.cause = cause


class CrewClient:
    """A client of one crew. It sends every request once, except in `content`.

    Raises Unreachable when no answer arrives, and RequestRefused for an answer that is no success. `words` are those
    with which a command finds the crew, by default its URL. `hints` are what to do after refusals. `actors` are who
    started and who stopped the kickoff of the command, if it was found on a server.
    """

    def __init__(
        self,
        base_url: str,
        token: Secret,
        words: tuple[str, ...] | None = None,
        hints: Mapping[type[Refused], str] | None = None,
    ) -> None:
        self.base_url = base_url
        self._hints = hints or {}
        self._token = token
        self.actors: dict[str, Any] = {}
        self._words = (base_url,) if words is None else words
        self._line = Transport(base_url, token.reveal())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def patient(self, seconds: float) -> AsyncCrew:
        """Returns a client of the same crew for many concurrent requests.

        It repeats a request for at most `seconds` while the server is not available.
        """
        return AsyncCrew(self.base_url, self._token.reveal(), patience=seconds)

    def command(self, name: str, *arguments: str) -> str:
        """Returns a windlass command for this crew, as a person would type it."""
        return shlex.join(["windlass", name, *self._words, *arguments])

    def inputs(self) -> dict[str, Any]:
        return self._ask(requests.inputs())

    def kickoff(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._ask(requests.kickoff(json.dumps(body).encode("ascii")))

    def status(self, kickoff_id: str, *, wait: float = 0.0) -> dict[str, Any]:
        """Returns the status. The server delays its answer until the kickoff has ended, by at most `wait` seconds."""
        return self._ask(requests.status(kickoff_id, wait))

    def attempts(self, kickoff_id: str) -> dict[str, Any]:
        return self._ask(requests.attempts(kickoff_id))

    def kickoffs(self, state: str | None, user: str | None, limit: int, cursor: str | None) -> dict[str, Any]:
        return self._ask(requests.list_kickoffs(state, user, limit, cursor))

    def events(self, kickoff_id: str, *, after: int, limit: int) -> dict[str, Any]:
        return self._ask(requests.events(kickoff_id, after, limit))

    def followed_events(
        self, kickoff_id: str, patience: float, paused: Callable[[float, CrewError], None]
    ) -> Iterator[Event]:
        """Yields the events until the kickoff has ended. Connects again for at most `patience` seconds in a row."""
        follower = EventFollower(kickoff_id, 0, protocol.Patience(patience))
        with cli_errors():
            yield from followed(self._line, follower, paused)

    def files(self, kickoff_id: str) -> dict[str, Any]:
        return self._ask(requests.files(kickoff_id))

    def content(self, kickoff_id: str, file: File, write: Callable[[bytes], None]) -> None:
        """Passes the content of the file to `write`, in pieces. Repeats a request while the server is not available."""
        with cli_errors():
            self._line.perform(protocol.content(kickoff_id, file, write, protocol.Patience(DOWNLOAD_SECONDS)))

    def stop(self, kickoff_id: str) -> dict[str, Any]:
        return self._ask(requests.stop(kickoff_id))

    def delete(self, kickoff_id: str, *, stop: bool) -> dict[str, Any]:
        return self._ask(requests.delete(kickoff_id, stop=stop))

    def stop_all(self, state: str | None, user: str | None, before: datetime | None) -> dict[str, Any]:
        return self._ask(requests.stop_all(state, user, before))

    def _ask(self, request: Request) -> dict[str, Any]:
        with cli_errors(request.path):
            try:
                return self._line.perform(protocol.once(request))
            except Refused as error:
                error.hint = self._hints.get(type(error), error.hint)
                raise


@contextmanager
def cli_errors(path: str = "") -> Iterator[None]:
    """Converts errors of a request to `path` into errors with the messages and exit codes of commands."""
    try:
        yield
    except errors.Unreachable as error:
        raise Unreachable(error, _hint(error, path)) from error
    except Refused as error:
        raise RequestRefused(error, _hint(error, path)) from error


def _hint(error: CrewError, path: str) -> str:
    if isinstance(error, Refused) and error.details.get("missing_inputs"):
        return "Give each one with: -i NAME=VALUE"
    if isinstance(error, Refused) and error.details.get("invalid_inputs"):
        return "`windlass inputs` shows the types. Give a JSON value of a certain type with: -i NAME:=JSON"
    if isinstance(error, errors.Unreachable) and error.was_sent and path == "/kickoff":
        return (
            "The server may have accepted the kickoff. A command that has --idempotency-key from the first try on can "
            "be repeated safely."
        )
    return error.hint

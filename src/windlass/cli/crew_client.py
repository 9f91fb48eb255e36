"""A crew's API as the commands see it: windlass.client in the words of the command line."""

from __future__ import annotations

import json
import shlex
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self

from windlass.cli.ending import OUT_OF_REACH, SERVER_SAID_NO
from windlass.client import AsyncCrew, CrewError, Refused, errors, requests, talks
from windlass.client.lines import Line
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from windlass.client.requests import Request
    from windlass.vault.secret import Secret

__all__ = ["CrewClient", "ServerSaidNo", "Unreachable", "told"]


class Unreachable(WindlassError):  # noqa: N818 - said of the server
    """`cause` is the error as the client knows it."""

    exit_code = OUT_OF_REACH

    def __init__(self, cause: CrewError, hint: str = "", *, message: str = "") -> None:
        super().__init__(message or cause.message, hint)
        self.cause = cause


class ServerSaidNo(WindlassError):  # noqa: N818 - said by the server
    exit_code = SERVER_SAID_NO

    def __init__(self, cause: Refused, hint: str) -> None:
        super().__init__(cause.message, hint)
        self.cause = cause


class CrewClient:
    """One crew at its base URL. Every request is sent once, and raises Unreachable, or ServerSaidNo for any answer but
    a success.

    `here` is the crew's name where commands find it without its URL.
    """

    def __init__(self, base_url: str, token: Secret, *, here: str | None = None) -> None:
        self.base_url = base_url
        self._token = token
        self._here = here
        self._address = () if here else (base_url,)
        self._line = Line(base_url, token.reveal())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def patient(self, seconds: float) -> AsyncCrew:
        """The same crew for many requests at once, each sent again while the server is away, for so long at most."""
        return AsyncCrew(self.base_url, self._token.reveal(), patience=seconds)

    def command(self, name: str, *arguments: str) -> str:
        """A command of ours on this crew, as a person would type it."""
        return shlex.join(["windlass", name, *self._address, *arguments])

    def inputs(self) -> dict[str, Any]:
        return self._ask(requests.inputs())

    def kickoff(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._ask(requests.kickoff(json.dumps(body).encode("ascii")))

    def status(self, kickoff_id: str, *, wait: float = 0.0) -> dict[str, Any]:
        """The server holds its answer back until the kickoff has ended, `wait` seconds at most."""
        return self._ask(requests.status(kickoff_id, wait))

    def attempts(self, kickoff_id: str) -> dict[str, Any]:
        return self._ask(requests.attempts(kickoff_id))

    def stop(self, kickoff_id: str) -> dict[str, Any]:
        return self._ask(requests.stop(kickoff_id))

    def _ask(self, request: Request) -> dict[str, Any]:
        with told(request.path):
            try:
                return self._line.converse(talks.once(request))
            except Refused as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    error.hint = self._where_to_look() or error.hint
                raise

    def _where_to_look(self) -> str:
        if not self._here:
            return ""
        others = f"{self.base_url.removesuffix(self._here)}SLUG"
        return (
            f"Without a URL a kickoff is looked for among those of {self._here}, the crew that the server on this "
            f"WINDLASS_HOME serves. For one of another crew, give its URL before the id: {others}"
        )


@contextmanager
def told(path: str = "") -> Iterator[None]:
    """What goes wrong with a request to `path`, in words and exit codes of commands."""
    try:
        yield
    except errors.Unreachable as error:
        raise Unreachable(error, _hint(error, path)) from error
    except Refused as error:
        raise ServerSaidNo(error, _hint(error, path)) from error


def _hint(error: CrewError, path: str) -> str:
    if isinstance(error, Refused) and error.details.get("missing_inputs"):
        return "Give each with: -i NAME=VALUE"
    if isinstance(error, errors.Unreachable) and error.was_sent and path == "/kickoff":
        return (
            "It may have accepted the kickoff: repeat the command with --idempotency-key, from the start, to be safe."
        )
    return error.hint

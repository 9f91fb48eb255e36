"""A crew's API from the client's side (docs/api.md)."""

from __future__ import annotations

import json
import shlex
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlsplit

import httpx

from windlass.cli.addresses import is_loopback
from windlass.cli.ending import OUT_OF_REACH, SERVER_SAID_NO
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windlass.vault.secret import Secret

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
AWAY = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
"""Answers after which the same request may succeed a little later."""
LONGEST_BODY_SHOWN = 200


class Unreachable(WindlassError):  # noqa: N818 - said of the server
    exit_code = OUT_OF_REACH
    retry_after = 0.0


class ServerSaidNo(WindlassError):  # noqa: N818 - said by the server
    exit_code = SERVER_SAID_NO

    def __init__(self, status: int, message: str, hint: str = "", *, retry_after: float = 0.0) -> None:
        super().__init__(message, hint)
        self.status = status
        self.retry_after = retry_after


class CrewClient:
    """One crew at its base URL. Every request raises Unreachable, or ServerSaidNo for any answer but a success.

    `here` is the crew's name where commands find it without its URL.
    """

    def __init__(self, base_url: str, token: Secret, *, here: str | None = None) -> None:
        self.base_url = base_url
        self._here = here
        self._address = () if here else (base_url,)
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {token.reveal()}", "Accept": "application/json"},
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            trust_env=not is_loopback(
                urlsplit(base_url).hostname or ""
            ),  # a proxy can't reach this machine's loopback, and would get the token
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def command(self, name: str, *arguments: str) -> str:
        """A command of ours on this crew, as a person would type it."""
        return shlex.join(["windlass", name, *self._address, *arguments])

    def inputs(self) -> dict[str, Any]:
        return self._ask("GET", "/inputs")

    def kickoff(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._ask("POST", "/kickoff", body)

    def status(self, kickoff_id: str, *, wait: float = 0.0) -> dict[str, Any]:
        """The server holds its answer back until the kickoff has ended, `wait` seconds at most."""
        query = f"?wait={wait:g}" if wait else ""
        return self._ask("GET", f"/status/{quote(kickoff_id, safe='')}{query}")

    def attempts(self, kickoff_id: str) -> dict[str, Any]:
        return self._ask("GET", f"/attempts/{quote(kickoff_id, safe='')}")

    def stop(self, kickoff_id: str) -> dict[str, Any]:
        return self._ask("POST", f"/stop/{quote(kickoff_id, safe='')}")

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        content = None if body is None else json.dumps(body).encode("ascii")
        headers = {"Content-Type": "application/json"} if content else None
        try:
            answer = self._http.request(method, self.base_url + path, content=content, headers=headers)
        except httpx.RequestError as error:
            raise _unreachable(self.base_url, path, error) from error
        if not answer.is_success:
            raise self._refused(answer)
        return _object(answer)

    def _refused(self, answer: httpx.Response) -> ServerSaidNo:
        error = refusal(answer)
        if self._here and error.status == HTTPStatus.NOT_FOUND:
            others = f"{self.base_url.removesuffix(self._here)}SLUG"
            error.hint = (
                f"Without a URL a kickoff is looked for among those of {self._here}, the crew that the server on this "
                f"WINDLASS_HOME serves. For one of another crew, give its URL before the id: {others}"
            )
        return error


def refusal(answer: httpx.Response) -> ServerSaidNo:
    """The server's error, message and details in words."""
    said = _body(answer)
    if answer.has_redirect_location:
        place = answer.headers["Location"]
        return ServerSaidNo(
            answer.status_code, f"The server sends on to {place}.", "Give the address of a crew itself."
        )
    if not isinstance(said, dict) or not isinstance(said.get("message"), str):
        return _foreign(answer)
    title = said.get("error") or answer.reason_phrase
    lines = [f"{answer.status_code} {title}: {said['message']}", *_in_words(said.get("details"))]
    retry_after = _retry_after(answer)
    return ServerSaidNo(answer.status_code, "\n".join(lines), _hint(said, retry_after), retry_after=retry_after)


def _in_words(details: object) -> list[str]:
    facts = details.items() if isinstance(details, dict) else ()
    return [f"  {str(name).replace('_', ' ')}: {_value(value)}" for name, value in facts]


def _value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_value(part) for part in value)
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_value(part)}" for name, part in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _hint(said: Mapping[str, Any], retry_after: float) -> str:
    details = said.get("details")
    if isinstance(details, dict) and details.get("missing_inputs"):
        return "Give each with: -i NAME=VALUE"
    return f"Try again in {retry_after:g} s." if retry_after else ""


def _foreign(answer: httpx.Response) -> ServerSaidNo:
    """An answer that no crew of ours gives: a proxy's, or another program's."""
    text = " ".join(answer.text.split())
    shown = text[:LONGEST_BODY_SHOWN] + ("..." if len(text) > LONGEST_BODY_SHOWN else "")
    kind = answer.headers.get("Content-Type", "no content type")
    got = f"{answer.status_code} {answer.reason_phrase}, {kind}. {shown}".strip()
    return ServerSaidNo(
        answer.status_code,
        f"{answer.url} does not answer as a crew does: {got}",
        "Check the address: it is a crew's base URL, as `windlass tokens show` prints it.",
        retry_after=_retry_after(answer),
    )


def _retry_after(answer: httpx.Response) -> float:
    given = answer.headers.get("Retry-After", "")
    return float(given) if given.isdecimal() else 0.0


def _object(answer: httpx.Response) -> dict[str, Any]:
    said = _body(answer)
    if not isinstance(said, dict):
        raise _foreign(answer)
    return said


def _body(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def _unreachable(base_url: str, path: str, error: httpx.RequestError) -> Unreachable:
    why = str(error).rstrip(".") or type(error).__name__
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return Unreachable(f"{base_url} can't be reached: {why}.", "Is the server running, and the address right?")
    if path == "/kickoff":
        hint = (
            "It may have accepted the kickoff: repeat the command with --idempotency-key, from the start, to be safe."
        )
        return Unreachable(f"{base_url} did not answer: {why}.", hint)
    return Unreachable(f"{base_url} did not answer: {why}.", "Try again, or see the server's log.")

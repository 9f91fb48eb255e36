"""Performs exchanges with a crew over a sync and an async HTTP client."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from windlass.client.errors import CrewError, NotACrew
from windlass.client.responses import NoAnswer, Outcome, parse_outcome
from windlass.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from windlass.client.protocol import Exchange
    from windlass.client.requests import Request

Parsed = TypeVar("Parsed")

SILENCE_SECONDS = 60.0
"""Seconds without a line after which a connection counts as lost. The server sends one at least every 15 s."""
STREAM = "text/event-stream"
CONNECT_SECONDS = 10.0
LONGEST_PAUSE = 120.0
"""Seconds without a byte sent or received after which a long request, such as an upload, is given up."""


class Transport:
    """A sync connection to the crew at `base_url`, which has no slash at its end."""

    def __init__(self, base_url: str, token: str, transport: httpx.BaseTransport | None = None) -> None:
        self.base_url = base_url
        self._http = httpx.Client(**_options(base_url, token), transport=transport)

    def perform(self, exchange: Exchange[Parsed]) -> Parsed:
        """Sends the requests of the exchange, and returns its result. Raises the CrewError that the exchange raises."""
        try:
            request = next(exchange)
            while True:
                request = exchange.send(self._send(request))
        except StopIteration as end:
            parsed: Parsed = end.value
            return parsed

    @contextmanager
    def lines(self, request: Request) -> Iterator[Iterator[str] | None]:
        """Yields the lines of a stream, None for a stream without content. Raises CrewError, also between two lines."""
        _check_open(self._http)
        try:
            with self._http.stream("GET", self.base_url + request.target, **_of_stream(request)) as answer:
                if not answer.is_success:
                    answer.read()
                yield answer.iter_lines() if check_stream(answer) else None
        except httpx.RequestError as error:
            parse_outcome(NoAnswer(self.base_url, error, SILENCE_SECONDS))

    def close(self) -> None:
        self._http.close()

    def _send(self, request: Request) -> Outcome:
        if request.after:
            time.sleep(request.after)
        _check_open(self._http)
        try:
            return self._exchange(request)
        except httpx.RequestError as error:
            return NoAnswer(self.base_url, error, request.seconds)

    def _exchange(self, request: Request) -> httpx.Response:
        """Limits the time of the whole exchange, because httpx limits only the time between two bytes."""
        end = time.monotonic() + request.seconds
        with self._http.stream(request.method, self.base_url + request.target, **_parts(request)) as answer:
            parts = []
            for part in answer.iter_bytes():
                parts.append(part)
                if time.monotonic() > end:
                    raise httpx.ReadTimeout("timed out", request=answer.request)
        headers = {name: value for name, value in answer.headers.items() if name != "content-encoding"}
        return httpx.Response(answer.status_code, headers=headers, content=b"".join(parts), request=answer.request)


class AsyncTransport:
    """Does the same as Transport, for asyncio."""

    def __init__(self, base_url: str, token: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.base_url = base_url
        self._http = httpx.AsyncClient(**_options(base_url, token), transport=transport)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def perform(self, exchange: Exchange[Parsed]) -> Parsed:
        try:
            request = next(exchange)
            while True:
                request = exchange.send(await self._send(request))
        except StopIteration as end:
            parsed: Parsed = end.value
            return parsed

    @asynccontextmanager
    async def lines(self, request: Request) -> AsyncIterator[AsyncIterator[str] | None]:
        _check_open(self._http)
        self._check_loop()
        try:
            async with self._http.stream("GET", self.base_url + request.target, **_of_stream(request)) as answer:
                if not answer.is_success:
                    await answer.aread()
                yield answer.aiter_lines() if check_stream(answer) else None
        except httpx.RequestError as error:
            parse_outcome(NoAnswer(self.base_url, error, SILENCE_SECONDS))

    async def close(self) -> None:
        self._check_loop()
        await self._http.aclose()

    async def _send(self, request: Request) -> Outcome:
        if request.after:
            await asyncio.sleep(request.after)
        _check_open(self._http)
        self._check_loop()
        try:
            async with asyncio.timeout(request.seconds):
                return await self._http.request(request.method, self.base_url + request.target, **_parts(request))
        except TimeoutError:
            return NoAnswer(self.base_url, httpx.ReadTimeout("timed out"), request.seconds)
        except httpx.RequestError as error:
            return NoAnswer(self.base_url, error, request.seconds)

    def _check_loop(self) -> None:
        """Raises CrewError in another event loop: open connections belong to the loop in which they were opened."""
        here = asyncio.get_running_loop()
        self._loop = self._loop or here
        if self._loop is not here:
            raise CrewError(
                "This AsyncCrew was used in another event loop.",
                "Create one in each event loop: in an `async with` block of the coroutine that asyncio.run() runs.",
            )


def address(base_url: str) -> str:
    """Returns the base URL without a slash at its end. Raises CrewError if it can't be the address of a crew."""
    try:
        url = httpx.URL(base_url)
        usable = url.scheme in {"http", "https"} and url.host and not (url.userinfo or url.query or url.fragment)
    except (TypeError, httpx.InvalidURL):
        usable = False
    if not usable:
        raise CrewError("The base URL is not the address of a crew.", "Use an address such as http://127.0.0.1:8000.")
    return base_url.rstrip("/")


def known_token(given: str | None) -> str:
    """Returns the given token, or that of the variable WINDLASS_TOKEN. Raises CrewError if it can't be a token."""
    token = (given or os.environ.get("WINDLASS_TOKEN", "")).strip()  # noqa: TID251 - the environment of the client's user
    if not token:
        raise CrewError(
            "There is no token.", "Pass one, or set WINDLASS_TOKEN: `windlass tokens show` prints the tokens of a crew."
        )
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise CrewError("The token is malformed.", "It contains spaces or characters that no token has.")
    return token


def _check_open(http: httpx.Client | httpx.AsyncClient) -> None:
    if http.is_closed:
        raise CrewError("This crew's client is closed.", "Create a new one, or use it inside its `with` block.")


def _options(base_url: str, token: str) -> dict[str, Any]:
    url = httpx.URL(base_url)
    return {
        "headers": {"Authorization": f"Bearer {token}", "Accept": "application/json"},
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=100),
        # A proxy can't reach the loopback of this machine, and it would receive the token.
        "trust_env": not is_loopback(url.host),
        # To load the certificates of all authorities takes longer than a request. Without TLS, none is needed.
        "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.scheme == "http" else httpx.create_ssl_context(),
    }


def _of_stream(request: Request) -> dict[str, Any]:
    return {"headers": {**request.headers}, "timeout": httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)}


def _parts(request: Request) -> dict[str, Any]:
    content_type = {"Content-Type": "application/json"} if request.content is not None else {}
    return {
        "content": request.content if request.pieces is None else request.pieces,
        "headers": {**content_type, **request.headers},
        "timeout": httpx.Timeout(min(request.seconds, LONGEST_PAUSE), connect=min(CONNECT_SECONDS, request.seconds)),
    }


def check_stream(response: httpx.Response) -> bool:
    """Returns whether events follow. Raises the error of a response that is no stream, whose content must be read."""
    if not response.is_success:
        parse_outcome(response)
    if response.status_code == HTTPStatus.NO_CONTENT:
        return False
    if not response.headers.get("content-type", "").startswith(STREAM):
        raise NotACrew(response.status_code, "The server streams no events.", "It may be older than this client.")
    return True

"""Reads requests to the proxy of runs (RFC 9110, 9112), and makes its answers. The requests come from code of crews."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import h11

from windlass.errors import WindlassError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

LONGEST_HEAD = 32 * 1024
USER = "run"
HTTP_PORT = 80
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
OF_A_CONNECTION = {b"connection", b"keep-alive", b"proxy-authorization", b"proxy-connection", b"te", b"upgrade"}
OF_THE_BODY = {b"content-length", b"transfer-encoding"}


class BadRequest(WindlassError):  # noqa: N818 - describes the request
    """Reports bytes that are no request that the proxy serves."""


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A connection that a run asks the proxy for. `host` is a name in lower case, or an address. `first` is what the
    host receives first, and `answer` what the run does.
    """

    host: str
    port: int
    token: str = field(repr=False)
    first: bytes = field(repr=False)
    answer: bytes


class RequestReader:
    """Reads one request from bytes as they arrive. All bytes after its head are for the host."""

    def __init__(self) -> None:
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=LONGEST_HEAD)

    def feed(self, data: bytes) -> ProxyRequest | None:
        """Returns the request when its head is complete. Empty bytes are the end. Raises BadRequest."""
        try:
            self._parser.receive_data(data)
            event = self._parser.next_event()
        except h11.RemoteProtocolError as error:
            raise BadRequest("these bytes are no request of HTTP") from error
        if event is h11.NEED_DATA:
            return None
        if not isinstance(event, h11.Request):
            raise BadRequest("the connection ended before a request")
        rest, _ = self._parser.trailing_data
        target = event.target.decode("ascii")
        if event.method == b"CONNECT":
            parts = _parts(f"//{target}")
            if parts.netloc != target:
                raise BadRequest("CONNECT names no host and port")
            return ProxyRequest(*_place(parts, None), token_in(event), rest, ESTABLISHED)
        parts = _parts(target)
        if parts.scheme != "http":
            raise BadRequest("the target is no URL with http://")
        place = _place(parts, HTTP_PORT)
        return ProxyRequest(*place, token_in(event), _head(event, parts) + rest, b"")


def _parts(target: str) -> SplitResult:
    try:
        return urlsplit(target)
    except ValueError as error:
        raise BadRequest("the target has no valid host") from error


def _place(parts: SplitResult, usual: int | None) -> tuple[str, int]:
    try:
        host, port = parts.hostname, usual if parts.port is None else parts.port
    except ValueError as error:
        raise BadRequest("the target has no valid port") from error
    if not host or not port or "@" in parts.netloc:
        raise BadRequest("the target has no host and port")
    return host.removesuffix("."), port


def token_in(request: h11.Request) -> str:
    """Returns the password of the request, "" if it has none."""
    given = next((value for name, value in request.headers if name == b"proxy-authorization"), b"")
    kind, _, credentials = given.partition(b" ")
    if kind.lower() != b"basic":
        return ""
    try:
        return base64.b64decode(credentials.strip(), validate=True).decode("ascii").partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _head(request: h11.Request, parts: SplitResult) -> bytes:
    """Returns the head of the request as the host receives it. The connection is for this request alone: the next one
    of the run may be for another host.
    """
    connections = [value.lower() for name, value in request.headers if name == b"connection"]
    named = {word.strip() for value in connections for word in value.split(b",")}
    dropped = OF_A_CONNECTION | (named - OF_THE_BODY) | {b"host"}
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = [(name, value) for name, value in request.headers.raw_items() if name.lower() not in dropped]
    lines = [
        b"%s %s HTTP/%s" % (request.method, path.encode("ascii"), request.http_version),
        *(b"%s: %s" % one for one in [(b"Host", parts.netloc.encode("ascii")), *kept, (b"Connection", b"close")]),
    ]
    return b"\r\n".join([*lines, b"", b""])


def refusal(code: int, words: str) -> bytes:
    """Returns an answer with this status. Its words are in the line of the status too: clients show only that."""
    reason = "".join(one if " " <= one <= "~" else "?" for one in words)
    body = f"{words}\n".encode()
    fields = ["Content-Type: text/plain; charset=utf-8", f"Content-Length: {len(body)}", "Connection: close"]
    if code == 407:  # noqa: PLR2004 - the status that asks for the token
        fields.append('Proxy-Authenticate: Basic realm="windlass"')
    return "\r\n".join([f"HTTP/1.1 {code} {reason}", *fields, "", ""]).encode() + body

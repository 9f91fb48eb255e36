"""The HTTP protocol of the server's connections, with time and size limits for reading requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from windlass.api.errors import DEFAULT_HEADERS, Problem, head_too_large, not_http, too_slow

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from windlass.api.connections import Connections, Held

LARGEST_HEAD = 64 * 1024
"""Bytes of a request's first line and headers, in addition to those of the first read from its connection."""
MOST_PIPELINED = 32
"""Requests that a connection may send before an earlier one is answered. Each takes some kilobytes of memory."""


class TimeoutProtocol(HttpToolsProtocol):
    """Closes connections whose requests do not arrive in time, and sends refusals as errors of the API.

    The body of a request that is being answered has its own deadline (bodies.py). This class sets the deadline for the
    rest of a body that arrives after the response.
    """

    within = 20.0
    guard: Connections
    """HttpServer sets it on a subclass."""
    _held: Held | None = None
    _timer: asyncio.TimerHandle | None = None
    _in_head = False
    _head = _read = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        entered = self.guard.enter(self.transport, self.client[0] if self.client else None)
        if isinstance(entered, Problem):
            self._refuse(entered)
        else:
            self._held = entered
            self._wait(self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._held:
            self.guard.leave(self._held)
            self._held = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._read = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(not_http())
        except httptools.HttpParserUpgrade as offer:
            self._stay_with_http(data[offer.args[0] :])
        if self._in_head:
            self._head += len(data)
            if self._head > LARGEST_HEAD:
                self._refuse(head_too_large(LARGEST_HEAD))

    def resume_writing(self) -> None:
        if self._held:
            self._held.behind_since = None
        super().resume_writing()

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head = -self._read  # the read that holds the beginning may also hold the end of the previous request
        self._wait(lambda: self._refuse(too_slow(self.within)))
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_waiting()
        if len(self.pipeline) >= MOST_PIPELINED:
            raise _TooManyPipelinedError  # it ends the parsing
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_waiting()
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.cycle.more_body and not self.pipeline:
            self._wait(self.transport.close)
        super().on_response_complete()

    def _stay_with_http(self, rest: bytes) -> None:
        """Ignores an offer to upgrade the protocol. Java's client sends one with its first request.

        The parser treats all bytes after such a head as the other protocol, even the body. A new parser therefore reads
        the request again without the offer. An offer in a pipelined request is refused: the client can't know the
        protocol of that response, and parsing again for each of many offers takes too long.
        """
        method = self.parser.get_method()
        is_ahead = self.cycle is not None and not self.cycle.response_complete
        if method == b"CONNECT" or is_ahead:
            return self._refuse(not_http())
        headers = [b"%s: %s" % header for header in self.headers if header[0] not in {b"connection", b"upgrade"}]
        self.parser = httptools.HttpRequestParser(self)
        return self.data_received(b"\r\n".join([b"%s %s HTTP/1.1" % (method, self.url), *headers, b"", rest]))

    def _wait(self, late: Callable[[], None]) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(self.within, late)

    def _stop_waiting(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, problem: Problem) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_on_the_wire(problem))
        elif self._in_the_middle_of_a_body():
            self.transport.write(_on_the_wire(problem))
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._in_head = False
        self.transport.close()

    def _in_the_middle_of_a_body(self) -> bool:
        """Returns whether the refused bytes are the body of a request without a response yet. Otherwise they follow a
        request that is being answered.
        """
        return self.cycle.more_body and not self._in_head and not self.cycle.response_started


class _TooManyPipelinedError(Exception):
    pass


def _on_the_wire(problem: Problem) -> bytes:
    body = json.dumps(problem.body()).encode()
    headers = {
        **problem.headers,
        **DEFAULT_HEADERS,
        "content-type": "application/json",
        "content-length": len(body),
        "Connection": "close",
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return STATUS_LINE[problem.status] + head.encode() + b"\r\n" + body

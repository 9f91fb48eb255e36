from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from windlass.api.problems import Problem, head_too_large, no_http, too_slow

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

LARGEST_HEAD = 64 * 1024
"""Bytes of a request's first line and headers, beyond what the first read from its connection brought."""


class PunctualProtocol(HttpToolsProtocol):
    """Closes connections whose requests do not arrive in time, and tells what it refuses in the one form of errors.

    The body of a request that is being answered has its own deadline (bodies.py); here is that of what still comes
    after the answer.
    """

    within = 20.0
    _timer: asyncio.TimerHandle | None = None
    _in_head = False
    _head = _read = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._read = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(no_http())
        except httptools.HttpParserUpgrade as offer:
            self._stay_with_http(data[offer.args[0] :])
        if self._in_head:
            self._head += len(data)
            if self._head > LARGEST_HEAD:
                self._refuse(head_too_large(LARGEST_HEAD))

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head = -self._read  # the read that brought the beginning may have brought the end of the one before
        self._wait(lambda: self._refuse(too_slow(self.within)))
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_waiting()
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
        """Answers an offer to change the protocol as if it had not been made (Java's client makes one at first).

        The parser takes what follows such a head for the other protocol, also when it is the body: it reads all again,
        without the offer.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            return self._refuse(no_http())
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
        """Of a request that nothing was answered to yet; else what is refused came after one that is being answered."""
        return self.cycle.more_body and not self._in_head and not self.cycle.response_started


def _on_the_wire(problem: Problem) -> bytes:
    body = json.dumps(problem.body()).encode()
    head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return STATUS_LINE[problem.status] + head.encode() + body

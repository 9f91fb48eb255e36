"""The connections of clients: their number, the time in which they must send and read."""

# See docs/decisions/api.md#a-request-that-is-late-is-closed
# See docs/decisions/api.md#write-buffers-are-checked-once-a-second

from __future__ import annotations

import ctypes
import json
import re
import resource
import select
import socket
import struct
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from windlass import log
from windlass.api.errors import (
    DEFAULT_HEADERS,
    Problem,
    another_host,
    head_too_large,
    no_host,
    not_http,
    server_full,
    too_many_connections,
    too_slow,
    two_hosts,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from windlass.access.authentication import Source


DESCRIPTORS = 0.5
"""Share of the file descriptors of a process that client connections may take."""
UNSENT = 128 * 1024
"""Bytes of a response that the kernel buffers before it can send them to the client."""
LARGEST_HEAD = 64 * 1024
"""Bytes of a request's first line and headers, in addition to those of the first read from its connection."""
MOST_PIPELINED = 32
"""Requests that a connection may send before an earlier one is answered. Each takes some kilobytes of memory."""
IDLE_SECONDS = 620
"""Time after which an idle connection is closed. It is longer than proxies and HTTP clients keep one (nginx 60, Caddy
120, Google's load balancer 600): the side that closes first never sends a request to a connection that is being closed.
"""

SO_ATTACH_FILTER = 26
"""Of Linux. The module `socket` has no name for it."""
LARGEST_REST = 128 << 20
"""Bytes of a refused request that are read and discarded, so that its client reads the response."""

logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`taken_within` is the time in seconds in which a client must receive the data that waits to be sent to it."""

    most: int = 1000
    most_per_address: int = 250
    taken_within: float = 30.0


class Transport(Protocol):
    def get_write_buffer_size(self) -> int: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def get_extra_info(self, name: str) -> Any: ...


class Held:
    """One connection. `behind_since` is the time at which unsent data was first seen. It is None without unsent data,
    and it is reset when the client has received buffered data. `used` is whether a request has begun on it.
    """

    __slots__ = ("behind_since", "source", "transport", "used")

    def __init__(self, transport: Transport, source: Source) -> None:
        self.transport = transport
        self.source = source
        self.behind_since: float | None = None
        self.used = False


class Connections:
    """The connections of one server. Connections from this machine's own addresses and from trusted proxies count in
    the total, but not per address, because many clients share these addresses. At a limit, the connection that has been
    idle for the longest time is closed for a new one.
    """

    def __init__(self, limits: ConnectionLimits, source_of: Callable[[str | None], Source]) -> None:
        self._limits = limits
        self._most = min(limits.most, int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * DESCRIPTORS))
        self._source_of = source_of
        self._held: set[Held] = set()
        self._idle: dict[Held, None] = {}  # in the order in which they became idle
        self._by_source: Counter[str] = Counter()
        self.closing = False
        """Whether each response closes its connection, because the server stops."""

    def __len__(self) -> int:
        return len(self._held)

    def enter(self, transport: Transport, host: str | None) -> Held | Problem:
        """Registers a connection. Returns the Problem to send if a limit is reached."""
        source = self._source_of(host)
        of_source = self._by_source[source.name] if source.limited else 0
        if of_source >= self._limits.most_per_address and not self._close_idle(source):
            logger.event("connection.refused", address=source.name, of_address=of_source)
            return too_many_connections(self._limits.most_per_address)
        if len(self._held) >= self._most and not self._close_idle():
            logger.event("connection.refused", address=source.name, connections=len(self._held))
            return server_full()
        if source.limited:
            self._by_source[source.name] += 1
        held = Held(transport, source)
        self._held.add(held)
        return held

    def leave(self, held: Held) -> None:
        if held not in self._held:
            return
        self._held.discard(held)
        self.busy(held)
        if held.source.limited:
            self._by_source[held.source.name] -= 1
            if not self._by_source[held.source.name]:
                del self._by_source[held.source.name]

    def idle(self, held: Held) -> None:
        """The connection has no request. It may be closed for another one."""
        self._idle[held] = None

    def busy(self, held: Held) -> None:
        held.used = True
        self._idle.pop(held, None)

    def close_unused(self) -> None:
        """Closes the connections without a request. One on which a request arrives at this moment stays open."""
        for held in [held for held in self._held if held in self._idle or not held.used]:
            if not _has_data(held.transport) and not held.transport.get_write_buffer_size():
                self.leave(held)
                held.transport.close()

    def abort_stalled(self, now: float) -> None:
        """Aborts the connections whose clients receive nothing.

        This also sets a minimum rate: a large response is sent in pieces, and the client must receive each in time.
        """
        for held in [held for held in self._held if self._is_late(held, now)]:
            logger.event("connection.stalled", address=held.source.name, seconds=self._limits.taken_within)
            held.transport.abort()

    def abort_all(self) -> None:
        for held in list(self._held):
            held.transport.abort()

    def _close_idle(self, source: Source | None = None) -> bool:
        """Closes the longest idle connection, of this source if one is given. Returns whether there was one. A
        connection with unsent data is not idle: it would stay open until its client has received the data.
        """
        for held in self._idle:
            if source in (None, held.source) and not held.transport.get_write_buffer_size():
                self.leave(held)
                held.transport.close()
                return True
        return False

    def _is_late(self, held: Held, now: float) -> bool:
        if not held.transport.get_write_buffer_size():
            held.behind_since = None
        elif held.behind_since is None:
            held.behind_since = now
        return held.behind_since is not None and now - held.behind_since >= self._limits.taken_within


def _has_data(transport: Transport) -> bool:
    """Returns whether the kernel has bytes of the client that were not read, or the client has closed."""
    descriptor = transport.get_extra_info("socket").fileno()
    if descriptor < 0:
        return True
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(0))


SYN, ACK = 0x02, 0x10
WITHOUT_NEW = (  # a program for the kernel's packet filter
    (0x30, 0, 0, 13),  # load the flags of the TCP header
    (0x54, 0, 0, SYN | ACK),
    (0x15, 1, 0, SYN),  # the first packet of a connection?
    (0x06, 0, 0, 0xFFFFFFFF),  # accept it
    (0x06, 0, 0, 0),  # drop it
)


def refuse_connections(listening: socket.socket) -> None:
    """Lets no further connection into the queue of a listening socket, from which the server still accepts. Linux only.

    When the socket is closed, the kernel resets the connections in its queue, although their clients may have sent a
    request. A client whose first packet is dropped repeats it a second later, and is refused then.
    """
    if sys.platform == "linux":
        program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in WITHOUT_NEW))
        with suppress(OSError):  # some sandboxes have no filters
            listening.setsockopt(
                socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(WITHOUT_NEW), ctypes.addressof(program))
            )


def limit_unsent_data(listening: socket.socket, taken_within: float) -> None:
    """Sets the same time limit in the kernel, for data that the kernel buffers. Linux only: there, accepted sockets
    inherit these options from the listening socket.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(taken_within * 1000))
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)


class PatientTransport:
    """A transport that does not close while its client sends.

    When a socket with unread data is closed, the kernel sends a reset, and a client that sends its whole request first
    never reads the response. So `close` ends only the sending side while `has_rest` is true. Calls `on_rest` then: the
    protocol discards the rest and calls `close` again.
    """

    def __init__(self, transport: asyncio.Transport, has_rest: Callable[[], bool], on_rest: Callable[[], None]) -> None:
        self._transport = transport
        self._has_rest, self._on_rest = has_rest, on_rest
        self.is_half_closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self.is_half_closed:
            self._transport.write(data)

    def is_closing(self) -> bool:
        return self.is_half_closed or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing() or not self._has_rest():
            self._transport.close()
        else:
            self._transport.write_eof()
            self.is_half_closed = True
            self._on_rest()


class TimeoutProtocol(HttpToolsProtocol):
    """Closes connections whose requests do not arrive in time, and sends refusals as errors of the API.

    The body of a request that is being answered has its own deadline (bodies.py). This class sets the deadline for the
    rest of a request that arrives after the response, and discards that rest.
    """

    within = 20.0
    guard: Connections
    """HttpServer sets it on a subclass."""
    _held: Held | None = None
    _timer: asyncio.TimerHandle | None = None
    _refusal: Problem | None = None
    _in_head = _refused = False
    _head = _read = _rest = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._patient = PatientTransport(transport, self._has_rest, self._discard_rest)
        self.transport = cast("asyncio.Transport", self._patient)
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
        if self._patient.is_half_closed:
            self._rest += len(data)
            if self._rest > LARGEST_REST:
                self.transport.close()
            return
        self._unset_keepalive_if_required()
        if self._held:
            self.guard.busy(self._held)
        self._read = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(self._refusal or not_http())
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
            raise _RefusedError  # it ends the parsing
        self._refusal = host_refusal(self.parser.get_http_version(), self.url, self.headers)
        if self._refusal:
            raise _RefusedError
        if not self.parser.should_upgrade():
            super().on_headers_complete()
            if self.guard.closing:
                self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        self._stop_waiting()
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.cycle.more_body and not self.pipeline:
            self._wait(self.transport.close)
        if self._held and not self.pipeline and not self.transport.is_closing():
            self.guard.idle(self._held)
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

    def _has_rest(self) -> bool:
        """Returns whether the client may still send the request that was answered."""
        return self._held is not None and (self._refused or (self.cycle is not None and self.cycle.more_body))

    def _discard_rest(self) -> None:
        self.flow.resume_reading()
        self._wait(self.transport.close)

    def _refuse(self, problem: Problem) -> None:
        self._refused = True
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_on_the_wire(problem))
        elif self._in_the_middle_of_a_body():
            self.transport.write(_on_the_wire(problem))
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        else:
            self._refused = False  # an answer is being sent, to which nothing can be added
        self._in_head = False
        self.transport.close()

    def _in_the_middle_of_a_body(self) -> bool:
        """Returns whether the refused bytes are the body of a request without a response yet. Otherwise they follow a
        request that is being answered.
        """
        return self.cycle.more_body and not self._in_head and not self.cycle.response_started


class _RefusedError(Exception):
    pass


def host_refusal(version: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> Problem | None:
    """Returns why the request names no host, or two of them. A proxy could then take it for one of another host.

    RFC 9112, 3.2: HTTP/1.1 needs a Host header. HTTP/1.0 does not. An address in the first line has the same host.
    """
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1:
        return two_hosts()
    if not hosts and version != "1.0":
        return no_host()
    scheme, has_host, rest = target.partition(b"://")
    if has_host and not scheme.startswith(b"/") and hosts:
        authority = re.split(rb"[/?#]", rest, maxsplit=1)[0]
        return None if authority.lower() == hosts[0].strip().lower() else another_host()
    return None


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

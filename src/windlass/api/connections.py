"""Limits the number of connections, and closes connections whose clients do not read their responses."""

from __future__ import annotations

import resource
import socket
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from windlass import log
from windlass.api.errors import Problem, server_full, too_many_connections

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.access.rate_limits import Source

DESCRIPTORS = 0.5
"""Share of the file descriptors of a process that client connections may take."""
UNSENT = 128 * 1024
"""Bytes of a response that the kernel buffers before it can send them to the client."""

logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`taken_within` is the time in seconds in which a client must receive the data that waits to be sent to it."""

    most: int = 1000
    most_per_address: int = 250
    taken_within: float = 30.0


class Transport(Protocol):
    def get_write_buffer_size(self) -> int: ...

    def abort(self) -> None: ...


class Held:
    """One connection. `behind_since` is the time at which unsent data was first seen. It is None without unsent data,
    and it is reset when the client has received buffered data.
    """

    __slots__ = ("behind_since", "source", "transport")

    def __init__(self, transport: Transport, source: Source) -> None:
        self.transport = transport
        self.source = source
        self.behind_since: float | None = None


class Connections:
    """The connections of one server. Connections from this machine's own addresses and from trusted proxies count in
    the total, but not per address, because many clients share these addresses.
    """

    def __init__(self, limits: ConnectionLimits, source_of: Callable[[str | None], Source]) -> None:
        self._limits = limits
        self._most = min(limits.most, int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * DESCRIPTORS))
        self._source_of = source_of
        self._held: set[Held] = set()
        self._by_source: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._held)

    def enter(self, transport: Transport, host: str | None) -> Held | Problem:
        """Registers a connection. Returns the Problem to send if a limit is reached."""
        source = self._source_of(host)
        if len(self._held) >= self._most:
            logger.event("connection.refused", address=source.name, connections=len(self._held))
            return server_full()
        if source.limited:
            if self._by_source[source.name] >= self._limits.most_per_address:
                logger.event("connection.refused", address=source.name, of_address=self._by_source[source.name])
                return too_many_connections(self._limits.most_per_address)
            self._by_source[source.name] += 1
        held = Held(transport, source)
        self._held.add(held)
        return held

    def leave(self, held: Held) -> None:
        self._held.discard(held)
        if held.source.limited:
            self._by_source[held.source.name] -= 1
            if not self._by_source[held.source.name]:
                del self._by_source[held.source.name]

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

    def _is_late(self, held: Held, now: float) -> bool:
        if not held.transport.get_write_buffer_size():
            held.behind_since = None
        elif held.behind_since is None:
            held.behind_since = now
        return held.behind_since is not None and now - held.behind_since >= self._limits.taken_within


def limit_unsent_data(listening: socket.socket, taken_within: float) -> None:
    """Sets the same time limit in the kernel, for data that the kernel buffers. Linux only: there, accepted sockets
    inherit these options from the listening socket.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(taken_within * 1000))
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)

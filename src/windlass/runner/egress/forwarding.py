"""Forwards bytes between a connection of a run and one to the host that it wanted."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from functools import partial
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windlass.ip_addresses import Address

CONNECT_SECONDS = 20.0
"""The time of one address to answer."""
MOST_TRIED = 4
"""Addresses of a name that are tried, one after the other."""
IDLE_SECONDS = 4 * 3600.0
"""The time without a byte after which a connection is ended."""
BUFFER = 256 * 1024
"""Bytes of one direction that wait for a slow reader. Then nothing more is read from the other side."""
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
AT_ONCE = struct.pack("ii", 1, 0)
NOT_AT_ONCE = struct.pack("ii", 0, 0)


def reset(given: socket.socket) -> None:
    """Ends a connection with a reset, which its other side sees as an error."""
    with contextlib.suppress(OSError):
        given.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    given.close()


def never_lingering(given: socket.socket) -> None:
    """Undoes what an accepted socket has from its listener, which is a crew's: its close could block this process."""
    given.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOT_AT_ONCE)


async def dial(addresses: Iterable[Address], port: int) -> socket.socket:
    """Returns a connection to the first address that answers. Raises the OSError of the first one if none does."""
    first: OSError | None = None
    for address in list(addresses)[:MOST_TRIED]:
        given = socket.socket(FAMILIES[address.version], socket.SOCK_STREAM)
        try:
            given.setblocking(False)
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(given, (str(address), port))
        except (OSError, TimeoutError) as error:  # the timeout is one of both, by the release of Python
            given.close()
            first = first or error
        except BaseException:
            given.close()
            raise
        else:
            return given
    raise first or OSError("no address")


class Side(asyncio.Protocol):
    """One side of a connection: what it receives goes to the `other` side. `received` counts the bytes. `has_ended` is
    true when it sends nothing more. With `is_last` its end is the end of the other direction too.
    """

    def __init__(self) -> None:
        self.other: Side
        self.transport: asyncio.Transport | None = None
        self.received = 0
        self.has_ended = self.is_last = False
        self.early: list[bytes] | None = []
        """What it received before the other side was there. None from then on."""
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(BUFFER)

    def begin(self) -> None:
        """Passes on what came before the other side was there."""
        early, self.early = self.early or [], None
        if self.other.transport is not None:
            self.other.transport.writelines(early)
        if self.has_ended:
            self._pass_end_on()

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if self.early is not None:
            self.early.append(data)
        elif self.other.transport is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        """Passes on the end of one direction. The other direction goes on."""
        self.has_ended = True
        if self.early is None:
            self._pass_end_on()
        return True

    def _pass_end_on(self) -> None:
        if self.other.has_ended or self.is_last:
            self.close()
        elif self.other.transport is not None and self.other.transport.can_write_eof():
            with contextlib.suppress(OSError, RuntimeError):  # that side is gone at the same moment
                self.other.transport.write_eof()

    def close(self) -> None:
        """Ends both sides, when they have what was received for them."""
        for side in (self, self.other):
            if side.transport is not None:
                side.transport.close()

    def pause_writing(self) -> None:
        if self.other.transport is not None and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self.has_ended, self.transport = True, None
        if not self.lost.done():
            self.lost.set_result(None)


def same(side: Side) -> Side:
    return side


class Forwarding:
    """A connection of a run, and the one to the host that it wanted. It takes both sockets, and closes them."""

    def __init__(self) -> None:
        self._crew, self._host = Side(), Side()
        self._crew.other, self._host.other = self._host, self._crew

    @property
    def sent(self) -> int:
        """The bytes that the crew has sent."""
        return self._crew.received

    @property
    def received(self) -> int:
        return self._host.received

    def finish(self) -> None:
        """Ends the connection when the host has what the crew has sent. The crew's process is gone or idle."""
        self._crew.is_last = True
        if self._crew.has_ended:
            self._crew.close()

    async def run(self, crew: socket.socket, host: socket.socket, *, request: bytes = b"", answer: bytes = b"") -> None:
        """Returns when both directions have ended, or one side is lost, or no byte came for IDLE_SECONDS.

        `request` is what the crew has sent already, and `answer` what it receives before what the host sends.
        """
        loop = asyncio.get_running_loop()
        host.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._crew.received = len(request)
        try:
            for side, given, first in ((self._crew, crew, request), (self._host, host, answer)):
                side.early = [first] if first else []
                given.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await loop.create_connection(partial(same, side), sock=given)
            for side in (self._crew, self._host):
                side.begin()
            await self._until_lost()
        finally:
            for side in (self._crew, self._host):
                if side.transport is not None:
                    side.transport.abort()

    async def _until_lost(self) -> None:
        ends = [self._crew.lost, self._host.lost]
        done: set[asyncio.Future[None]] = set()
        count = -1
        while not done and count != self.sent + self.received:
            count = self.sent + self.received
            done, _ = await asyncio.wait(ends, timeout=IDLE_SECONDS, return_when=asyncio.FIRST_COMPLETED)

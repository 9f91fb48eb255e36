from __future__ import annotations

import asyncio
import os
import socket

CHUNK = 1 << 16
MOST_DESCRIPTORS = 2


class Readable:
    """A descriptor of someone else's, read as it fills.

    After `finish()` what it holds by then is read, and no more waited for: a process that outlives a child may hold
    the other end for ever.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._finishing = False
        self._wake = asyncio.Event()

    async def read(self) -> bytes:
        """The next bytes; none at the end."""
        while True:
            try:
                return self._take()
            except BlockingIOError:
                if self._finishing:
                    return b""
                await self._wait()
            except ConnectionResetError:
                return b""

    def _take(self) -> bytes:
        return os.read(self._descriptor, CHUNK)

    async def _wait(self) -> None:
        # watched only while someone waits: a reader that is busy leaves the bytes where they are, and the writer waits
        loop = asyncio.get_running_loop()
        self._wake.clear()
        loop.add_reader(self._descriptor, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            loop.remove_reader(self._descriptor)

    def finish(self) -> None:
        self._finishing = True
        self._wake.set()


class ReadableSocket(Readable):
    """One that descriptors may come with, until they are taken; those that come later, or are too many, are closed."""

    def __init__(self, given: socket.socket) -> None:
        super().__init__(given.fileno())
        self._socket = given
        self._kept: list[int] = []
        self._taken = False

    def take_descriptors(self) -> list[int]:
        kept, self._kept, self._taken = self._kept, [], True
        return kept

    def _take(self) -> bytes:
        data, descriptors, _, _ = socket.recv_fds(self._socket, CHUNK, MOST_DESCRIPTORS)
        for descriptor in descriptors:
            if self._taken or len(self._kept) == MOST_DESCRIPTORS:
                os.close(descriptor)
            else:
                self._kept.append(descriptor)
        return data

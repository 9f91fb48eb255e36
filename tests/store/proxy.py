"""Stands between Windlass and PostgreSQL, so that a test can take the database away and give it back."""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

SOCKET = ".s.PGSQL.5432"


class Proxy:
    """It has plain sockets and closes each itself: a stream of asyncio stays open where its task is cancelled before
    it begins.
    """

    def __init__(self, url: str) -> None:
        given = conninfo_to_dict(url)
        self._there = str(Path(str(given["host"])) / f".s.PGSQL.{given.get('port') or 5432}")
        self._folder = Path(tempfile.mkdtemp(prefix="windlass-test-"))
        self._listening: socket.socket | None = None
        self._pairs: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self.url = make_conninfo(url, host=str(self._folder), port="5432")

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        shutil.rmtree(self._folder)

    async def open(self) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.setblocking(False)
        self._listening.bind(str(self._folder / SOCKET))
        self._listening.listen(100)
        asyncio.get_running_loop().add_reader(self._listening, self._accept, self._listening)

    async def close(self) -> None:
        """Nobody gets through any more, and whoever is connected is cut off."""
        if self._listening:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
            (self._folder / SOCKET).unlink()
        await self.cut()

    async def cut(self) -> None:
        """Cuts off whoever is connected; others may come."""
        pairs = list(self._pairs)
        for pair in pairs:
            pair.cancel()
        await asyncio.gather(*pairs, return_exceptions=True)

    def freeze(self) -> None:
        """Whoever is connected or comes gets no answer, until `thaw`."""
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    def _accept(self, listening: socket.socket) -> None:
        try:
            client, _ = listening.accept()
        except OSError:  # the client has gone again
            return
        pair = asyncio.create_task(self._join(client))
        self._pairs.add(pair)
        pair.add_done_callback(self._pairs.discard)
        pair.add_done_callback(lambda _: client.close())  # a task that is cancelled before it begins runs no line

    async def _join(self, client: socket.socket) -> None:
        """Ends with the first of the two who closes its end."""
        with client, socket.socket(socket.AF_UNIX) as server:
            client.setblocking(False)
            server.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(server, self._there)
            except OSError:  # PostgreSQL is not there
                return
            ways = [asyncio.create_task(self._copy(*way)) for way in ((client, server), (server, client))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)

    async def _copy(self, source: socket.socket, target: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(source, 65536):
            await self._flows.wait()
            await loop.sock_sendall(target, data)

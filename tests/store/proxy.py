"""Stands between Windlass and PostgreSQL, so that a test can take the database away and give it back."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

SOCKET = ".s.PGSQL.5432"


class Proxy:
    def __init__(self, url: str) -> None:
        given = conninfo_to_dict(url)
        self._there = str(Path(str(given["host"])) / f".s.PGSQL.{given.get('port') or 5432}")
        self._folder = Path(tempfile.mkdtemp(prefix="windlass-test-"))
        self._server: asyncio.Server | None = None
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
        self._server = await asyncio.start_unix_server(self._serve, self._folder / SOCKET)

    async def close(self) -> None:
        """Nobody gets through any more, and whoever is connected is cut off."""
        if self._server:
            self._server.close()
            self._server = None
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

    async def _serve(self, client_reader: StreamReader, client_writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        try:
            await self._join(client_reader, client_writer)
        finally:
            self._pairs.discard(task)

    async def _join(self, client_reader: StreamReader, client_writer: StreamWriter) -> None:
        try:
            reader, writer = await asyncio.open_unix_connection(self._there)
        except OSError:  # PostgreSQL is not there
            client_writer.transport.abort()
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(client_reader, writer))
                both.create_task(self._copy(reader, client_writer))
            writer.close()
        except* (ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
            client_writer.transport.abort()

    async def _copy(self, source: StreamReader, target: StreamWriter) -> None:
        while data := await source.read(65536):
            await self._flows.wait()
            target.write(data)
            await target.drain()
        target.close()

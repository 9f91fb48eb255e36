"""A program of others that gets webhooks, and answers as a test wants it."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable


@dataclass(frozen=True)
class Got:
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b"ok"
    headers: dict[str, str] = field(default_factory=dict)


OK = Reply()


class Receiver:
    """Answers each request with what `reply` returns for it, and hangs with None. `got` has all requests."""

    def __init__(
        self, reply: Callable[[Got], Reply | None] = lambda _: OK, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self.reply = reply
        self.got: list[Got] = []
        self._tls = tls
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, *(one.wait_closed() for one in self._writers), return_exceptions=True)
        await self._server.wait_closed()

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}{path}"

    @property
    def accepted(self) -> list[Got]:
        """The requests that it took for the first time."""
        seen: dict[str, Got] = {}
        for one in self.got:
            reply = self.reply(one)
            if reply is not None and reply.status < 300:
                seen.setdefault(one.id, one)
        return list(seen.values())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if task := asyncio.current_task():
            self._tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            raw = await reader.readexactly(int(headers["content-length"]))
            got = Got(head[0].split(" ")[1], headers, raw)
            self.got.append(got)
            if (reply := self.reply(got)) is None:
                return  # the connection stays open until the end
            lines = {"Content-Length": str(len(reply.body)), "Connection": "close", **reply.headers}
            text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            writer.write(f"HTTP/1.1 {reply.status} X\r\n{text}\r\n".encode() + reply.body)
            await writer.drain()
        writer.close()

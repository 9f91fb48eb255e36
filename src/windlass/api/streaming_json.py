"""Responses of many megabytes. The server does not keep a response in memory while a slow client reads it."""

# See docs/decisions/api.md#a-large-status-is-sent-from-a-file

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.responses import Response, StreamingResponse

from windlass.aio import LARGE, offload
from windlass.api.errors import too_many_large_answers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable, Iterator, Sequence
    from pathlib import Path

    from starlette.types import Send

T = TypeVar("T")
JSON = "application/json"
Write = Callable[["AnswerFile"], Awaitable[None]]

_disk = ThreadPoolExecutor(1, "windlass-answers")
"""One thread, so that a file is closed only after all reads and writes of it that were submitted before."""


async def json_text(parts: Sequence[str]) -> Response:
    """Returns JSON text as a response. A large text is sent in pieces as fast as its client reads. Other requests are
    answered in between.
    """
    size = sum(map(len, parts))
    if size <= LARGE:
        return Response("".join(parts).encode(), media_type=JSON)
    pieces = await offload(size, lambda: [piece.encode() for part in parts for piece in _pieces(part)])
    length = sum(map(len, pieces))
    return StreamingResponse(_each(pieces), media_type=JSON, headers={"content-length": str(length)})


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + LARGE] for at in range(0, len(text), LARGE))


async def _each(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


class LargeAnswers:
    """Responses that are written to a file in `folder`, and then sent from the file as fast as their clients read.

    A slow client therefore holds no database connection, and only one piece in memory. The files have no name: the
    system frees them when they are closed or the server ends. Requests with the same key share a file. All files
    together take `most` bytes. A response without room gets Problem 503, unless it is the only one.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most
        self._files: dict[Hashable, AnswerFile] = {}
        self.bytes = 0
        self.files = 0
        """Number of files created so far."""

    def response(self, key: Hashable, write: Write) -> Response:
        """Returns a response with the JSON text that `write` adds to the file."""
        return _FileResponse(lambda: self._written(key, write))

    @asynccontextmanager
    async def _written(self, key: Hashable, write: Write) -> AsyncIterator[AnswerFile]:
        file = self._files.get(key)
        if file is None:
            file = self._files[key] = AnswerFile(self)
            self.files += 1
            file.writing = asyncio.create_task(_write(file, write))
        file.readers += 1
        try:
            await asyncio.shield(file.writing)
            yield file
        finally:
            file.readers -= 1
            if not file.readers:
                del self._files[key]
                file.writing.cancel()
                file.writing.add_done_callback(file.close)

    async def create(self) -> Any:
        return await _on_disk(lambda: tempfile.TemporaryFile(dir=self._folder, buffering=0))

    def reserve(self, size: int) -> None:
        """Raises Problem 503 if there is no room for `size` more bytes."""
        if self.bytes + size > self._most and len(self._files) > 1:
            raise too_many_large_answers()
        self.bytes += size


class AnswerFile:
    writing: asyncio.Task[None]

    def __init__(self, answers: LargeAnswers) -> None:
        self._answers = answers
        self._file: Any = None
        self._waiting = bytearray()
        self.size = 0
        self.readers = 0

    async def add(self, piece: bytes) -> None:
        """Buffers small pieces, and writes them together."""
        self._answers.reserve(len(piece))
        self.size += len(piece)
        self._waiting += piece
        if len(self._waiting) >= LARGE:
            await self.flush()

    async def flush(self) -> None:
        if self._file is None:
            self._file = await self._answers.create()
        file, waiting, self._waiting = self._file, self._waiting, bytearray()
        await _on_disk(lambda: _write_all(file, waiting))

    async def pieces(self) -> AsyncIterator[bytes]:
        at, number = 0, self._file.fileno()
        while at < self.size:
            piece = await _on_disk(partial(os.pread, number, LARGE, at))
            at += len(piece)
            yield piece

    def close(self, writing: asyncio.Task[None]) -> None:
        if not writing.cancelled():
            writing.exception()  # every reader has raised it; otherwise asyncio logs it again
        self._answers.bytes -= self.size
        if self._file is not None:
            _disk.submit(self._file.close)


class _FileResponse(StreamingResponse):
    """Writes the file when the response is sent. If the client disconnects before, the writing is cancelled."""

    def __init__(self, written: Callable[[], Any]) -> None:
        super().__init__(_each([]), media_type=JSON)
        self._written = written

    async def stream_response(self, send: Send) -> None:
        async with self._written() as file:
            self.headers["content-length"] = str(file.size)
            self.body_iterator = file.pieces()
            await super().stream_response(send)


async def _write(file: AnswerFile, write: Write) -> None:
    await write(file)
    await file.flush()


def _write_all(file: Any, waiting: bytearray) -> None:
    rest = memoryview(waiting)
    while rest:
        rest = rest[file.write(rest) :]


async def _on_disk(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_disk, work)

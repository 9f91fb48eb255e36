"""The files of a kickoff as responses. Crew code wrote them, so no browser may show them as pages of this server."""

from __future__ import annotations

import re
import zipfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from windlass.api.errors import no_such_file, no_such_range
from windlass.kickoffs.files import CHUNK, refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    from starlette.requests import Request

    from windlass.kickoffs.files import StoredFile
    from windlass.store.files import FileStore
    from windlass.store.reading import KickoffStatus

PROTECTION = {
    "content-security-policy": "sandbox; default-src 'none'",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
REVALIDATED = "private, no-cache"
"""A client may keep its copy and ask with If-None-Match; a proxy may not keep one."""
RANGE = re.compile(r"bytes=(?:([0-9]{1,15})-([0-9]{0,15})|-([0-9]{1,15}))")
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of the members of a zip: the format needs one, and equal files should make equal zips."""
MODE = 0o100644 << 16


async def find_file(store: FileStore, kickoff: KickoffStatus, path: str) -> StoredFile:
    """Raises Problem 404 for a path that the kickoff has no file with."""
    found = await store.find(kickoff.id, path) if kickoff.file_count and refusal(path) is None else None
    if found is None:
        raise no_such_file()
    return found


def file_response(store: FileStore, kickoff: UUID, file: StoredFile, request: Request) -> Response:
    etag = f'"{file.sha256.hex()}"'
    headers = {
        **PROTECTION,
        "cache-control": REVALIDATED,
        "content-disposition": attachment(PurePosixPath(file.path).name),
        "content-type": file.media_type,
        "accept-ranges": "bytes",
        "etag": etag,
    }
    if _names(request.headers.get("if-none-match", ""), etag):
        return Response(status_code=304, headers={"etag": etag, "cache-control": REVALIDATED})
    start, end = _range(request, etag, file.size)
    headers["content-length"] = str(end - start)
    part = end - start < file.size
    if part:
        headers["content-range"] = f"bytes {start}-{end - 1}/{file.size}"
    status = 206 if part else 200
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers)
    return StreamingResponse(_content(store, kickoff, file, start, end), status, headers)


def zip_response(store: FileStore, kickoff: UUID, files: Sequence[StoredFile], request: Request) -> Response:
    headers = {**PROTECTION, "content-disposition": attachment(f"{kickoff}.zip"), "content-type": "application/zip"}
    if request.method == "HEAD":
        response = Response(headers=headers)
        del response.headers["content-length"]  # it is not known before the zip is made
        return response
    return StreamingResponse(_zipped(store, kickoff, files), headers=headers)


def attachment(name: str) -> str:
    """Returns a Content-Disposition (RFC 6266) with the name in UTF-8, and in ASCII for old clients."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def _names(header: str, etag: str) -> bool:
    """Returns whether If-None-Match names the ETag."""
    return header.strip() == "*" or etag in {one.strip().removeprefix("W/") for one in header.split(",")}


def _range(request: Request, etag: str, size: int) -> tuple[int, int]:
    """Returns the first byte to send, and the byte after the last. Several ranges get the whole file."""
    asked = RANGE.fullmatch(request.headers.get("range", ""))
    if not asked or request.headers.get("if-range", etag) != etag:
        return 0, size
    first, last, suffix = asked.groups()
    start = max(0, size - int(suffix)) if suffix else int(first)
    end = size if suffix or not last else min(size, int(last) + 1)
    if start >= size or start >= end:
        raise no_such_range(size)
    return start, end


async def _content(store: FileStore, kickoff: UUID, file: StoredFile, start: int, end: int) -> AsyncIterator[bytes]:
    """Reads each chunk with a statement of its own: a slow client holds no connection of the database."""
    for position in range(start // CHUNK, -(-end // CHUNK)):
        chunk = await store.chunk(kickoff, file.content, position)
        if chunk is None:
            raise no_such_file()  # it was changed or deleted: the connection is closed before the end of the answer
        at = position * CHUNK
        yield chunk[max(0, start - at) : end - at]


async def _zipped(store: FileStore, kickoff: UUID, files: Sequence[StoredFile]) -> AsyncIterator[bytes]:
    """Yields a zip. Its members are not compressed, which would hold the event loop."""
    written = _Written()
    with zipfile.ZipFile(written, "w") as archive:
        for file in files:
            member = zipfile.ZipInfo(file.path, EPOCH)
            member.external_attr = MODE
            member.file_size = file.size
            with archive.open(member, "w") as content:
                async for chunk in _content(store, kickoff, file, 0, file.size):
                    content.write(chunk)
                    yield written.taken()
    yield written.taken()


class _Written:
    """A stream that can't be read or rewound. It holds what was written since the last call of `taken`."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes, /) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def taken(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken

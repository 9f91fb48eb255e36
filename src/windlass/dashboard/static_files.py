"""The files that pages load: our own, and those that `make assets` takes from npm packages. All are in the wheel."""

# See docs/decisions/dashboard.md#the-stylesheet-has-only-rules-that-are-used

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "woff2": "font/woff2"}
COMPRESSED = {"css", "js", "svg"}
LOADED_FILE = re.compile(rb'url\("([\w./-]+)"\)')


@dataclass(frozen=True, slots=True)
class StaticFile:
    """`compressed` is the gzip form, None for a file that is compressed already."""

    content: bytes
    compressed: bytes | None
    media_type: str
    tag: str


async def static_file(request: Request) -> Response:
    """Returns the file. With its tag in the query, browsers keep it for a year."""
    found = load(request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    age = "public, max-age=31536000, immutable" if request.query_params.get("v") == found.tag else "no-cache"
    headers = {"Cache-Control": age, "ETag": f'"{found.tag}"', "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if found.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.compressed, media_type=found.media_type, headers={**headers, "Content-Encoding": "gzip"})
    return Response(found.content, media_type=found.media_type, headers=headers)


@cache
def names() -> frozenset[str]:
    """Returns the names of all files, with `/` below `static`."""
    root = resources.files("windlass.dashboard").joinpath("static")
    folders = [("", root), *((f"{one.name}/", one) for one in root.iterdir() if one.is_dir())]
    return frozenset(f"{prefix}{one.name}" for prefix, folder in folders for one in folder.iterdir() if one.is_file())


@cache
def load(name: str) -> StaticFile | None:
    """Returns the file, or None if there is no such file."""
    media_type = MEDIA_TYPES.get(name.rpartition(".")[2])
    if media_type is None or name not in names():
        return None
    content = resources.files("windlass.dashboard").joinpath("static", *name.split("/")).read_bytes()
    if name.endswith(".css"):
        content = LOADED_FILE.sub(_with_tag, content)
    compressed = gzip.compress(content, 9, mtime=0) if name.rpartition(".")[2] in COMPRESSED else None
    return StaticFile(content, compressed, media_type, hashlib.sha256(content).hexdigest()[:12])


def _with_tag(match: re.Match[bytes]) -> bytes:
    """Returns the address with the tag of its file: the page's preload names it so, and browsers keep it."""
    found = load(match[1].decode())
    return match[0] if found is None else b'url("%b?v=%b")' % (match[1], found.tag.encode())

"""A client of the control API of a server (docs/reference/control-api.md): deployments, builds, variables, people."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote, urlencode

from windlass.client.requests import Request
from windlass.client.responses import A_SERVER, Answer, NoAnswer, parse_content, parse_outcome
from windlass.client.transport import Transport, address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from windlass.client.protocol import Exchange

    Sent = Callable[[int], None]

Parsed = TypeVar("Parsed")

BASE = "/api/v1"
LARGEST_PAGE = 1000
UPLOAD_SECONDS = 3600.0
PIECE = 256 << 10


class Control:
    """A client of the control API at the address of a server, with a personal token. Use it in a `with` block.

    `path` is the path of a request as its parts, such as ("deployments", slug, "builds"). Members of `query` that are
    None are left out. Each request is sent once. Raises Unreachable when no answer arrives, and Refused for an answer
    that is no success.
    """

    def __init__(self, server: str, token: str) -> None:
        self.address = address(server)
        self._line = Transport(self.address, token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def perform(self, exchange: Exchange[Parsed]) -> Parsed:
        return self._line.perform(exchange)

    def get(self, *path: str, wait: float = 0.0, **query: Any) -> Answer:
        """`wait` is how many seconds the server may hold back its answer."""
        return self.perform(_asked(Request("GET", _target(path, query), wait=wait)))

    def text(self, *path: str, media_type: str, **query: Any) -> bytes:
        """Returns the whole answer in another form than JSON."""
        request = Request("GET", _target(path, query), headers={"Accept": media_type})
        return self.perform(_read(request))

    def send(self, method: str, *path: str, body: Any = None, **query: Any) -> Answer:
        content = None if body is None else json.dumps(body).encode("ascii")
        return self.perform(_asked(Request(method, _target(path, query), content)))

    def upload(self, *path: str, file: Path, sent: Sent, **query: Any) -> Answer:
        """Sends a zip file in pieces, and calls `sent` with the number of bytes so far."""
        headers = {"Content-Type": "application/zip", "Content-Length": str(file.stat().st_size)}
        request = Request(
            "POST", _target(path, query), grace=UPLOAD_SECONDS, headers=headers, pieces=_pieces(file, sent)
        )
        return self.perform(_asked(request))

    def pages(self, *path: str, limit: int, **query: Any) -> tuple[list[dict[str, Any]], str | None]:
        """Returns at most `limit` items of a list, and the cursor after them, None when there are no more."""
        found: list[dict[str, Any]] = []
        cursor = None
        while len(found) < limit:
            page = self.get(*path, **{**query, "limit": min(limit - len(found), LARGEST_PAGE), "cursor": cursor})
            found += page["items"]
            cursor = page.get("next_cursor")
            if cursor is None:
                break
        return found, cursor


def _asked(request: Request) -> Exchange[Answer]:
    outcome = yield request
    if not isinstance(outcome, NoAnswer) and outcome.status_code == HTTPStatus.NO_CONTENT:
        return {}
    return parse_outcome(outcome, A_SERVER)


def _read(request: Request) -> Exchange[bytes]:
    return parse_content((yield request))


def _target(path: tuple[str, ...], query: dict[str, Any]) -> str:
    place = "/".join(quote(part, safe="") for part in path)
    given = {name: _text(value) for name, value in query.items() if value is not None}
    return f"{BASE}/{place}{'?' if given else ''}{urlencode(given)}"


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _pieces(file: Path, sent: Sent) -> Iterator[bytes]:
    done = 0
    with file.open("rb") as opened:
        while piece := opened.read(PIECE):
            yield piece
            done += len(piece)
            sent(done)

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from windlass.away import LARGE, away

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

JSON = "application/json"


async def json_text(parts: Sequence[str]) -> Response:
    """JSON text as a response; a large one goes out piece by piece, at the pace of its client, and others are answered
    in between.
    """
    size = sum(map(len, parts))
    if size <= LARGE:
        return Response("".join(parts).encode(), media_type=JSON)
    pieces = await away(size, lambda: [piece.encode() for part in parts for piece in _pieces(part)])
    length = sum(map(len, pieces))
    return StreamingResponse(_each(pieces), media_type=JSON, headers={"content-length": str(length)})


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + LARGE] for at in range(0, len(text), LARGE))


async def _each(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece

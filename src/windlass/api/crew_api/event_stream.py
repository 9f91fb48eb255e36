"""Server-Sent Events: the events of a kickoff as a stream, and the tickets with which a browser opens one."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from windlass.api.crew_api.views import event_text
from windlass.api.errors import bad_request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from uuid import UUID

    from starlette.requests import Request

    from windlass.store.reading import NextEvents

    Page = NextEvents | None

MEDIA_TYPE = "text/event-stream"
MOST_DIGITS = 18
RETRY = "retry: 2000\n\n"
"""Milliseconds after which a browser connects again."""
HEARTBEAT = ": nothing new\n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""The second one keeps nginx from collecting the events."""
LINE_ENDS = str.maketrans("\r\n", "  ")
"""In JSON text, a line end can only stand between two tokens."""


def wants_stream(request: Request) -> bool:
    """Returns whether the client accepts Server-Sent Events."""
    accepted = (one.partition(";")[0].strip().lower() for one in request.headers.get("accept", "").split(","))
    return MEDIA_TYPE in accepted


def last_event_id(request: Request) -> int | None:
    """Returns the number of the last event that the client has, None if it names none. Raises Problem 400."""
    given = request.headers.get("last-event-id")
    if not given:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) <= MOST_DIGITS):
        raise bad_request("`Last-Event-ID` must be the `id` of an event of this kickoff: a whole number.")
    return int(given)


async def with_first(first: Page, others: AsyncGenerator[Page]) -> AsyncGenerator[Page]:
    """Yields `first` again, then the other pages."""
    async with aclosing(others):
        yield first
        async for page in others:
            yield page


def stream_response(kickoff: UUID, pages: AsyncGenerator[Page]) -> Response:
    """Returns the pages as a stream of messages."""

    async def frames() -> AsyncGenerator[str]:
        yield RETRY
        async with aclosing(pages):
            async for page in pages:
                yield HEARTBEAT if page is None else "".join(frames_of(kickoff, page))

    return StreamingResponse(frames(), media_type=MEDIA_TYPE, headers=HEADERS)


def frames_of(kickoff: UUID, page: NextEvents) -> list[str]:
    """Returns a message for each event, or the message `end` for the last page."""
    if page.is_last:
        state = page.state
        words = {
            "kickoff_id": str(kickoff),
            "status": state.status_on_the_wire if state else None,
            "state": state.state_on_the_wire if state else None,
        }
        return [f"event: end\ndata: {json.dumps(words, separators=(',', ':'))}\n\n"]
    return [f"id: {event.seq}\ndata: {event_text(event).translate(LINE_ENDS)}\n\n" for event in page.events]

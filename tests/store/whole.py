"""A status with all of its members, those of a large one read from where they are stored."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from windlass.store.reading import Stored

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.store.kickoffs import KickoffStore
    from windlass.store.reading import KickoffStatus


async def whole(store: KickoffStore, kickoff: UUID) -> KickoffStatus:
    status = (await store.statuses([kickoff]))[kickoff]
    if not status.large:
        return status
    async with store.large_members(kickoff) as pieces:
        read: dict[str, Any] = {
            name: b"".join([piece async for piece in pieces(member)]).decode()
            for name, member in ((field.name, getattr(status, field.name)) for field in fields(status))
            if isinstance(member, Stored)
        }
    return replace(status, **read)


async def events_of(store: KickoffStore, kickoff: UUID) -> list[dict[str, Any]]:
    """Returns all events, page by page, with their payloads parsed."""
    found: list[dict[str, Any]] = []
    while page := await store.events(kickoff, after=found[-1]["seq"] if found else 0):
        found += [{**event._asdict(), "payload": json.loads(event.payload)} for event in page]
    return found


def loaded(text: str | Stored | None) -> Any:
    """None for a member without a value."""
    assert not isinstance(text, Stored)
    return json.loads(text or "null")

"""A status with all of its members, those of a large one read from where they are stored."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from windlass.store.kickoffs import Stored

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.store.kickoffs import KickoffStatus, KickoffStore


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


def loaded(text: str | Stored | None) -> Any:
    """None for a member without a value."""
    assert not isinstance(text, Stored)
    return json.loads(text or "null")

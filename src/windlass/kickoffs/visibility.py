from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID


def may_see(asker: UUID | None, owner: UUID | None) -> bool:
    """Whether who asks may know of a kickoff that `owner` started: a user sees what is their own, the organization
    (None) sees all. What the organization started has None for an owner.
    """
    return asker is None or asker == owner

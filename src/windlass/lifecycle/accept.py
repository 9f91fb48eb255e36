from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.errors import DatabaseUnavailable, WindlassError
from windlass.lifecycle.batching import Batcher

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.store.kickoffs import KickoffStore, NewKickoff, Reserved


class IdempotencyKeyReused(WindlassError):  # noqa: N818 - said of the key
    """The same key came with another request within its 24 hours."""


class Acceptor:
    """Kickoffs that arrive while a commit runs share the next one. What `accept` has returned is on disk."""

    def __init__(self, store: KickoffStore) -> None:
        self._store = store
        self._batches: Batcher[NewKickoff, bool] = Batcher(
            self._insert, hopeless=DatabaseUnavailable, apart=lambda new: new.reservation
        )

    async def accept(self, new: NewKickoff) -> UUID:
        """The kickoff's id: the given one, or that of the kickoff which the same request made before."""
        while not await self._batches.ask(new):
            if reserved := await self._reserved(new):
                return _same_request(new, reserved)
            # The key ended between the two statements: it is free again.
        return new.id

    async def _insert(self, batch: list[NewKickoff]) -> Sequence[bool]:
        accepted = await self._store.accept(batch)
        return [new.id in accepted for new in batch]

    async def _reserved(self, new: NewKickoff) -> Reserved | None:
        return await self._store.reserved(new.reservation) if new.reservation else None


def _same_request(new: NewKickoff, reserved: Reserved) -> UUID:
    if reserved.request_digest != new.request_digest:
        raise IdempotencyKeyReused(
            f"The idempotency key was used for kickoff {reserved.kickoff_id} with another request.",
            "Send the same request again, or take a new key.",
        )
    return reserved.kickoff_id

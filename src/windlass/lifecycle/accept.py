from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.errors import DatabaseUnavailable, WindlassError
from windlass.kickoffs.visibility import may_see
from windlass.lifecycle.batching import Batcher

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.store.kickoffs import Holder, KickoffStore, NewKickoff, Reserved

SHORTEST, LONGEST = 1, 60
PER_SECOND = 100
"""Kickoffs of a crew that are taken to leave its queue in a second, for want of better knowledge."""


class IdempotencyKeyReused(WindlassError):  # noqa: N818 - said of the key
    """The same key came with another request within its 24 hours."""


class QueueFull(WindlassError):  # noqa: N818 - said of the queue
    """As many kickoffs of the deployment wait as may.

    `waiting` is how many do, `max_waiting` how many may. `retry_after` is in seconds: a hundredth of what waits, as if
    a hundred left the queue in a second, between 1 and 60. It spreads the clients that come again; it is no promise.
    """

    def __init__(self, waiting: int, max_waiting: int) -> None:
        super().__init__(
            f"The queue of this crew is full: {waiting} {_wait(waiting)}, and {max_waiting} may.",
            "Try again later, or raise max_waiting under [tool.windlass] in pyproject.toml, or WINDLASS_MAX_WAITING.",
        )
        self.waiting = waiting
        self.max_waiting = max_waiting
        self.retry_after = min(LONGEST, max(SHORTEST, waiting // PER_SECOND))


class KeyInUse(WindlassError):  # noqa: N818 - said of the key
    """Another kickoff has the same concurrency key and has not ended, and the strategy is to refuse. `kickoff_id` is
    None for who may not see it.
    """

    def __init__(self, kickoff_id: UUID | None) -> None:
        which = f"Kickoff {kickoff_id}" if kickoff_id else "Another kickoff"
        super().__init__(
            f"{which} has the same concurrencyKey and has not ended.",
            "Try again when it has, or choose another concurrencyStrategy: enqueue or cancel_running.",
        )
        self.kickoff_id = kickoff_id


class Acceptor:
    """Kickoffs that arrive while a commit runs share the next one. What `accept` has returned is on disk."""

    def __init__(self, store: KickoffStore) -> None:
        self._store = store
        self._batches: Batcher[NewKickoff, bool | WindlassError] = Batcher(
            self._insert, hopeless=DatabaseUnavailable, apart=lambda new: (new.reservation, new.claim_to_key)
        )

    async def accept(self, new: NewKickoff) -> UUID:
        """The kickoff's id: the given one, or that of the kickoff which the same request made before, whatever else
        would speak against it now. Raises QueueFull, KeyInUse, IdempotencyKeyReused.
        """
        while (answer := await self._batches.ask(new)) is not True:
            if reserved := await self._reserved(new):
                return _same_request(new, reserved)
            if isinstance(answer, WindlassError):
                raise answer
            # The key ended between the two statements: it is free again.
        return new.id

    async def _insert(self, batch: list[NewKickoff]) -> Sequence[bool | WindlassError]:
        accepted = await self._store.accept(batch)
        full = {new: QueueFull(backlog.waiting, backlog.most) for new, backlog in accepted.full.items()}
        return [
            full.get(new.id) or _key_in_use(new, accepted.taken.get(new.id)) or new.id in accepted.ids for new in batch
        ]

    async def _reserved(self, new: NewKickoff) -> Reserved | None:
        return await self._store.reserved(new.reservation) if new.reservation else None


def _wait(count: int) -> str:
    return "kickoff waits" if count == 1 else "kickoffs wait"


def _key_in_use(new: NewKickoff, holder: Holder | None) -> KeyInUse | None:
    if holder is None:
        return None
    return KeyInUse(holder.id if may_see(new.user_id, holder.user_id) else None)


def _same_request(new: NewKickoff, reserved: Reserved) -> UUID:
    if reserved.request_digest != new.request_digest:
        raise IdempotencyKeyReused(
            f"The idempotency key was used for kickoff {reserved.kickoff_id} with another request.",
            "Send the same request again, or take a new key.",
        )
    return reserved.kickoff_id

"""Accepts kickoffs and stops them, as clients request it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from windlass import log, metrics
from windlass.batching import Batcher
from windlass.errors import DatabaseUnavailable, WindlassError
from windlass.kickoffs.states import State
from windlass.rights import may_see

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.store.accepting import Accepting, Holder, NewKickoff, Reserved
    from windlass.store.audit import Actor
    from windlass.store.ending import Endings, StopFilter


SHORTEST, LONGEST = 1, 60
PER_SECOND = 100
"""The assumed number of kickoffs that leave the queue of a crew in a second. The real number is not known."""
AT_ONCE = 200
"""Waiting kickoffs that one transaction ends. The transaction takes about 50 ms, and nobody else waits for it."""
PAUSE = 0.01
"""Seconds between two such transactions, in which other statements can run."""
logger = log.logger(__name__)


class IdempotencyKeyReused(WindlassError):  # noqa: N818 - describes the key
    """Reports that the same key was used for another request within 24 hours."""


class QueueFull(WindlassError):  # noqa: N818 - describes the queue
    """Reports that the queue of the deployment is full or, with `of_user`, that one user's share of it is full.

    `waiting` is the number of kickoffs that wait, and `max_waiting` the limit. `retry_after` is in seconds: a hundredth
    of `waiting`, as if 100 kickoffs left the queue in a second, and between 1 and 60. It spreads the clients that try
    again. The queue may still be full after that time.
    """

    def __init__(self, waiting: int, max_waiting: int, *, of_user: bool = False) -> None:
        super().__init__(*(_share_is_full if of_user else _queue_is_full)(waiting, max_waiting))
        self.of_user = of_user
        self.waiting = waiting
        self.max_waiting = max_waiting
        self.retry_after = min(LONGEST, max(SHORTEST, waiting // PER_SECOND))


class KeyInUse(WindlassError):  # noqa: N818 - describes the key
    """Reports that another kickoff with the same concurrency key has not ended, and that the strategy is to refuse.

    `kickoff_id` is None for a client that may not see the other kickoff.
    """

    def __init__(self, kickoff_id: UUID | None) -> None:
        which = f"Kickoff {kickoff_id}" if kickoff_id else "Another kickoff"
        super().__init__(
            f"{which} has the same concurrencyKey and has not ended.",
            "Try again after it has ended, or choose another concurrencyStrategy: enqueue or cancel_running.",
        )
        self.kickoff_id = kickoff_id


class Acceptor:
    """Accepts kickoffs in batches: those that arrive during a commit share the next commit.

    A kickoff is on disk when `accept` returns.
    """

    def __init__(self, store: Accepting) -> None:
        self._store = store
        self._batches: Batcher[NewKickoff, bool | WindlassError] = Batcher(
            self._insert, fatal=DatabaseUnavailable, conflicts=lambda new: (new.reservation, new.claim_to_key)
        )

    async def accept(self, new: NewKickoff) -> UUID:
        """Returns the id of the new kickoff, or of the kickoff that the same request created before.

        A repeated request gets its id even if a new kickoff would be refused now. Raises QueueFull, KeyInUse and
        IdempotencyKeyReused.
        """
        while (answer := await self._batches.ask(new)) is not True:
            if reserved := await self._reserved(new):
                return _same_request(new, reserved)
            if isinstance(answer, WindlassError):
                raise answer
            # The key expired between the two statements, so it is free again.
        return new.id

    async def _insert(self, batch: list[NewKickoff]) -> Sequence[bool | WindlassError]:
        accepted = await self._store.accept(batch)
        metrics.ACCEPTED.inc(len(accepted.ids))
        full = {
            new: QueueFull(backlog.waiting, backlog.most, of_user=backlog.of_user)
            for new, backlog in accepted.full.items()
        }
        return [
            full.get(new.id) or _key_in_use(new, accepted.taken.get(new.id)) or new.id in accepted.ids for new in batch
        ]

    async def _reserved(self, new: NewKickoff) -> Reserved | None:
        return await self._store.reserved(new.reservation) if new.reservation else None


def _queue_is_full(waiting: int, most: int) -> tuple[str, str]:
    return (
        f"The queue of this crew is full: {waiting} {_wait(waiting)}, and the limit is {most}.",
        "Try again later, or raise max_waiting under [tool.windlass] in pyproject.toml, or WINDLASS_MAX_WAITING.",
    )


def _share_is_full(waiting: int, most: int) -> tuple[str, str]:
    return (
        f"This user's share of the crew's queue is full: {waiting} {_wait(waiting)}, and the limit is {most}.",
        "Try again after some have started, or stop some with POST /stop. WINDLASS_USER_QUEUE_SHARE sets the share.",
    )


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
            "Send the same request again, or use a new key.",
        )
    return reserved.kickoff_id


class Stops:
    """Stops kickoffs, in the queue or on any worker. A stop is on disk when `stop` returns, and is not undone."""

    def __init__(self, store: Endings) -> None:
        self._store = store

    async def stop(self, kickoff: UUID, by: Actor) -> State | None:
        """Returns the state of the kickoff after the request.

        CANCELLED means that the kickoff was waiting. STARTED means that its worker is going to end it. Any other state
        means that the kickoff had ended before. Returns None for an unknown kickoff.
        """
        state = await self._store.stop(kickoff, by)
        if state is not None:
            logger.event("kickoff.stop_requested", kickoff_id=kickoff, state=state)
        return state

    async def stop_all(self, wanted: StopFilter, by: Actor) -> int:
        """Stops the kickoffs that match now, in bounded transactions. Returns their number.

        Each transaction is durable. After an interruption the same call stops the rest.
        """
        stopped = 0
        while found := await self._store.matching(wanted):
            wanted = replace(wanted, before=wanted.before or found.read_at)
            for start in range(0, len(found.waiting), AT_ONCE):
                stopped += await self._store.stop_waiting(found.waiting[start : start + AT_ONCE], by)
                await asyncio.sleep(PAUSE)
            for kickoff in found.running:
                stopped += await self._store.stop(kickoff, by) in {State.STARTED, State.CANCELLED}
        if stopped:
            logger.event("kickoffs.stop_requested", deployment_id=wanted.deployment, count=stopped)
        return stopped

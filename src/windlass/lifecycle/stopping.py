from __future__ import annotations

from typing import TYPE_CHECKING

from windlass import log

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.kickoffs.states import State
    from windlass.store.kickoffs import KickoffStore

logger = log.logger(__name__)


class Stops:
    """Stops kickoffs, wherever they are: what `stop` has returned is on disk, and nothing brings the kickoff back."""

    def __init__(self, store: KickoffStore) -> None:
        self._store = store

    async def stop(self, kickoff: UUID) -> State | None:
        """Its state then: CANCELLED when it waited, STARTED while its worker ends it, any other when it had ended by
        itself. None for no kickoff of ours.
        """
        state = await self._store.stop(kickoff)
        if state is not None:
            logger.event("kickoff.stop_requested", kickoff_id=kickoff, state=state)
        return state

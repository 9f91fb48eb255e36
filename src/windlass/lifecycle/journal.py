from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.away import away
from windlass.store.kickoffs import Entry
from windlass_crewside.messages import Remember

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.store.kickoffs import KickoffStore, Remembered
    from windlass.vault.key_ring import KeyRing
    from windlass_crewside.messages import Journaled

PURPOSE = "journal"


class Journal:
    """The finished steps of one kickoff: encrypted on their way into the database, decrypted on their way out."""

    def __init__(self, store: KickoffStore, key_ring: KeyRing, kickoff: UUID) -> None:
        self._store = store
        self._key_ring = key_ring
        self._kickoff = kickoff

    async def remembered(self) -> list[Remember]:
        """Raises UnknownKey and Damaged when it can't be read."""
        found = await self._store.journal(self._kickoff)
        return await away(sum(len(one.record) for one in found), lambda: [self._open(one) for one in found])

    async def entry(self, step: Journaled) -> Entry:
        return await away(len(step.record), lambda: self._seal(step))

    def _open(self, one: Remembered) -> Remember:
        record = self._key_ring.open(one.record, self._context(one.number))
        return Remember(one.number, one.key, record, one.output)

    def _seal(self, step: Journaled) -> Entry:
        record = self._key_ring.seal(step.record, self._context(step.number))
        return Entry(step.number, step.key, record, step.position, apart=step.apart)

    def _context(self, number: int) -> str:
        return f"journal.record:{self._kickoff}/{number}"

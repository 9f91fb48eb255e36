from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.offload import offload
from windlass.secrets.key_ring import Sealed
from windlass.store.kickoffs import JournalEntry
from windlass_child.process.messages import JournalReplay

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.secrets.key_ring import KeyRing
    from windlass.store.kickoffs import JournalRow, KickoffStore
    from windlass_child.process.messages import JournalAppend

PURPOSE = "journal"


class Journal:
    """Encrypts and decrypts the journal entries of one kickoff."""

    def __init__(self, store: KickoffStore, key_ring: KeyRing, kickoff: UUID) -> None:
        self._store = store
        self._key_ring = key_ring
        self._kickoff = kickoff

    async def entries(self) -> list[JournalReplay]:
        """Returns the decrypted entries in order. Raises UnknownKey and Damaged if one can't be decrypted."""
        found = await self._store.journal(self._kickoff)
        return await offload(sum(len(one.record) for one in found), lambda: [self._open(one) for one in found])

    async def entry(self, step: JournalAppend) -> JournalEntry:
        return await offload(len(step.record), lambda: self._seal(step))

    def _open(self, one: JournalRow) -> JournalReplay:
        record = self._key_ring.open(one.record, Sealed.JOURNAL_RECORD.of(self._row(one.number)))
        return JournalReplay(one.number, one.key, record, one.output)

    def _seal(self, step: JournalAppend) -> JournalEntry:
        record = self._key_ring.seal(step.record, Sealed.JOURNAL_RECORD.of(self._row(step.number)))
        return JournalEntry(step.number, step.key, record, step.position, apart=step.apart)

    def _row(self, number: int) -> str:
        return f"{self._kickoff}/{number}"

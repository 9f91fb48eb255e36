from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from windlass.lifecycle.background_tasks import until_the_database_answers
from windlass.offload import offload
from windlass.secrets.key_ring import Sealed
from windlass.store.kickoffs import JournalEntry
from windlass_child.process.messages import JournalReplay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
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

    async def replay(self) -> AsyncIterator[list[JournalReplay]]:
        """Yields the decrypted entries in order, in parts of bounded size. Waits while the database is away.

        Raises UnknownKey and Damaged if an entry can't be decrypted.
        """
        last = 0
        while part := await until_the_database_answers(partial(self._store.journal, self._kickoff, last)):
            last = part[-1].number
            yield await offload(sum(len(one.record) for one in part), partial(self._opened, part))

    async def entry(self, step: JournalAppend) -> JournalEntry:
        return await offload(len(step.record), lambda: self._seal(step))

    def _opened(self, part: Sequence[JournalRow]) -> list[JournalReplay]:
        return [self._open(one) for one in part]

    def _open(self, one: JournalRow) -> JournalReplay:
        record = self._key_ring.open(one.record, Sealed.JOURNAL_RECORD.of(self._row(one.number)))
        return JournalReplay(one.number, one.key, record, one.output)

    def _seal(self, step: JournalAppend) -> JournalEntry:
        record = self._key_ring.seal(step.record, Sealed.JOURNAL_RECORD.of(self._row(step.number)))
        return JournalEntry(step.number, step.key, record, step.position, output_elsewhere=step.apart)

    def _row(self, number: int) -> str:
        return f"{self._kickoff}/{number}"

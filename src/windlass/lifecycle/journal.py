"""Encrypts and decrypts the entries of journals. The child makes them, and the store keeps them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from windlass.aio import offload
from windlass.lifecycle.background_tasks import until_the_database_answers
from windlass.secrets.key_ring import Sealed
from windlass.store.reporting import JournalEntry
from windlass_child.protocol.messages import Answered, Asked, JournalReplay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from windlass.secrets.key_ring import KeyRing
    from windlass.store.claiming import Claimed, JournalRow
    from windlass.store.kickoffs import KickoffStore
    from windlass_child.protocol.messages import JournalAppend

PURPOSE = "journal"
"""The purpose of the keys that encrypt entries."""


class EncryptedJournal:
    """Encrypts and decrypts the journal entries of one kickoff."""

    def __init__(self, store: KickoffStore, key_ring: KeyRing, claimed: Claimed) -> None:
        self._store = store
        self._key_ring = key_ring
        self._claimed = claimed
        self._kickoff = claimed.id

    async def replay(self) -> AsyncIterator[Sequence[JournalReplay | Answered]]:
        """Yields the decrypted entries in order, in parts of bounded size, then the answers to questions. Waits while
        the database is away.

        Raises UnknownKey and Damaged if an entry can't be decrypted.
        """
        last = 0
        while part := await until_the_database_answers(partial(self._store.journal, self._kickoff, last)):
            last = part[-1].number
            yield await offload(sum(len(one.record) for one in part), partial(self._opened, part))
        if self._claimed.asked:
            read = partial(self._store.answers_of, self._kickoff, self._claimed.attempt)
            answers = await until_the_database_answers(read)
            yield [Answered(one.number, one.answer.approved, one.answer.feedback) for one in answers if one.answer]

    async def entry(self, step: JournalAppend | Asked) -> JournalEntry:
        return await offload(len(step.record), lambda: self._seal(step))

    def _opened(self, part: Sequence[JournalRow]) -> list[JournalReplay]:
        return [self._open(one) for one in part]

    def _open(self, one: JournalRow) -> JournalReplay:
        record = self._key_ring.open(one.record, Sealed.JOURNAL_RECORD.of(self._row(one.number)))
        return JournalReplay(one.number, one.key, record, one.output)

    def _seal(self, step: JournalAppend | Asked) -> JournalEntry:
        record = self._key_ring.seal(step.record, Sealed.JOURNAL_RECORD.of(self._row(step.number)))
        if isinstance(step, Asked):  # without a position: its task is not finished, and a later attempt runs it again
            return JournalEntry(step.number, step.key, record, confirmed=False)
        return JournalEntry(step.number, step.key, record, step.position, output_elsewhere=step.output_elsewhere)

    def _row(self, number: int) -> str:
        return f"{self._kickoff}/{number}"

"""The operations on stored kickoffs, each in the module of its topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.store.accepting import IDEMPOTENCY_LASTS, MAX_WAITING, USER_SHARE, Accepting
from windlass.store.claiming import Claims, WorkerStore
from windlass.store.ending import Endings
from windlass.store.files import FileStore
from windlass.store.questions import Questions
from windlass.store.reading import KickoffReads
from windlass.store.reporting import Reports

if TYPE_CHECKING:
    from datetime import timedelta

    from windlass.store.database import Database


class KickoffStore(Accepting, Claims, Reports, Endings, Questions, KickoffReads):
    """Stores kickoffs and changes their states.

    Each change of state is one guarded statement. Its return value reports whether the change took effect.
    """

    def __init__(
        self,
        database: Database,
        *,
        idempotency_lasts: timedelta = IDEMPOTENCY_LASTS,
        max_waiting: int = MAX_WAITING,
        user_share: float = USER_SHARE,
    ) -> None:
        super().__init__(database, idempotency_lasts=idempotency_lasts, max_waiting=max_waiting, user_share=user_share)
        self.workers = WorkerStore(database)
        self.files = FileStore(database)

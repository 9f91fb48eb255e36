"""The operations on stored kickoffs, each in the module of its topic."""

from __future__ import annotations

from functools import cached_property

from windlass.store.accepting import Accepting
from windlass.store.claiming import Claims, WorkerStore
from windlass.store.ending import Endings
from windlass.store.files import FileStore
from windlass.store.questions import Questions
from windlass.store.reading import KickoffReads
from windlass.store.reporting import Reports


class KickoffStore(Accepting, Claims, Reports, Endings, Questions, KickoffReads):
    """Stores kickoffs and changes their states.

    Each change of state is one guarded statement. Its return value reports whether the change took effect.
    """

    @cached_property
    def workers(self) -> WorkerStore:
        return WorkerStore(self._database)

    @cached_property
    def files(self) -> FileStore:
        """One for all who use this store, because it limits how many chunks of files are read at once."""
        return FileStore(self._database)

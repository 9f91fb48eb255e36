"""Wakes the readers that wait for a notification about a kickoff."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass.store.listener import Listener


class Notices:
    """Resolves futures by kickoff, at a notification on one of the `channels`.

    After a gap in the connection of the listener it resolves all of them, since notifications may be lost.
    """

    def __init__(self, listener: Listener, *channels: str) -> None:
        self._waiting: defaultdict[UUID, set[asyncio.Future[None]]] = defaultdict(set)
        for channel in channels:
            listener.on(channel, lambda kickoff: self._resolve(UUID(kickoff)))
        listener.on_gap(self.resolve_all)

    @contextmanager
    def of(self, kickoff: UUID) -> Iterator[asyncio.Future[None]]:
        """Yields a future that the next notification resolves.

        A caller reads the database within the block, so that no change between the read and the wait is missed.
        """
        notice: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[kickoff].add(notice)
        try:
            yield notice
        finally:
            waiting = self._waiting.get(kickoff, set())
            waiting.discard(notice)
            if not waiting:
                self._waiting.pop(kickoff, None)

    def resolve_all(self) -> None:
        for kickoff in list(self._waiting):
            self._resolve(kickoff)

    def _resolve(self, kickoff: UUID) -> None:
        for notice in self._waiting.pop(kickoff, ()):
            if not notice.done():
                notice.set_result(None)

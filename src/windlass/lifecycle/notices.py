"""Wakes the readers that wait for a notification about a kickoff or a build."""

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
    """Resolves futures by the id of a kickoff or a build, at a notification on one of the `channels`.

    After a gap in the connection of the listener it resolves all of them, since notifications may be lost.
    """

    def __init__(self, listener: Listener, *channels: str) -> None:
        self._waiting: defaultdict[UUID, set[asyncio.Future[None]]] = defaultdict(set)
        for channel in channels:
            listener.on(channel, lambda text: self._resolve(UUID(text)))
        listener.on_gap(self.resolve_all)

    @contextmanager
    def of(self, id_: UUID) -> Iterator[asyncio.Future[None]]:
        """Yields a future that the next notification resolves.

        A caller reads the database within the block, so that no change between the read and the wait is missed.
        """
        notice: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[id_].add(notice)
        try:
            yield notice
        finally:
            waiting = self._waiting.get(id_, set())
            waiting.discard(notice)
            if not waiting:
                self._waiting.pop(id_, None)

    def resolve_all(self) -> None:
        for id_ in list(self._waiting):
            self._resolve(id_)

    def _resolve(self, id_: UUID) -> None:
        for notice in self._waiting.pop(id_, ()):
            if not notice.done():
                notice.set_result(None)


async def notified(notice: asyncio.Future[None], seconds: float) -> bool:
    """Waits for a notice. Returns False when the time is over."""
    done, _ = await asyncio.wait({notice}, timeout=max(seconds, 0))
    return bool(done)

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from windlass.store.listener import Listener

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
MOST_KNOWN = 10_000


class NotifyCache(Generic[Key, Value]):
    """Caches rows that every request needs.

    PostgreSQL notifies of each change on `channel`. One notification empties the whole cache. Nothing is cached while
    the listener is disconnected. Missing rows are not cached.
    """

    def __init__(self, look_up: Callable[[Key], Awaitable[Value | None]], listener: Listener, channel: str) -> None:
        self._look_up = look_up
        self._listener = listener
        self._kept: dict[Key, Value] = {}
        self._changes = 0
        listener.on(channel, lambda _: self._forget())
        listener.on_gap(self._forget)

    def kept(self, key: Key) -> Value | None:
        """Returns the cached value, without a query."""
        return self._kept.get(key)

    async def get(self, key: Key) -> Value | None:
        kept = self._kept.get(key)
        return kept if kept is not None else await self._get(key)

    async def _get(self, key: Key) -> Value | None:
        changes = self._changes
        found = await self._look_up(key)
        # A change that was notified during the query may be newer than the row.
        if found is not None and changes == self._changes and self._listener.listening.is_set():
            if len(self._kept) >= MOST_KNOWN:
                self._kept.clear()
            self._kept[key] = found
        return found

    def _forget(self) -> None:
        self._changes += 1
        self._kept.clear()

"""The zygotes of one runner: started on demand, shared, and stopped when they have been idle for long."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windlass import metrics
from windlass.aio import cancelled, shielded
from windlass.errors import ChildLost
from windlass.runner.processes import process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from windlass.runner.reuse.kept_children import KeptChildren
    from windlass.runner.spawning import ZygoteSpec
    from windlass.runner.zygote import Zygote

TIDY_EVERY = 1.0
"""Seconds."""
ROOM_SECONDS = 30.0
"""How long a new zygote waits while the zygotes in use hold all of the memory for zygotes."""

ZygoteKey = tuple["ZygoteSpec", str]
"""The spec of a zygote, and the name of the only run that may use it, or ""."""


@dataclass(slots=True)
class PoolEntry:
    starting: asyncio.Task[Zygote]
    users: int = 0
    used_at: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        """Whether the zygote could not be started, or has ended."""
        if not self.starting.done():
            return False
        return self.zygote is None or self.zygote.lost

    @property
    def zygote(self) -> Zygote | None:
        """The zygote, None before it is ready and if it could not be started."""
        done = self.starting.done() and not self.starting.cancelled() and self.starting.exception() is None
        return self.starting.result() if done else None

    @property
    def idle(self) -> bool:
        return self.users == 0 and self.starting.done()

    @property
    def memory(self) -> int:
        """The memory of the zygote in bytes; 0 when it does not run."""
        if not self.starting.done() or self.over:
            return 0
        found = process(self.starting.result().pid)
        return found.rss if found else 0

    async def stop(self) -> None:
        self.starting.cancel()
        await asyncio.wait([self.starting])
        if self.zygote is not None:
            await self.zygote.stop()


class ZygotePool:
    """Keeps zygotes by their specs.

    An unused zygote is kept for `idle_seconds`. `memory` (bytes) is how much all zygotes and idle children (`kept`)
    together may hold: above it idle children are ended. When a zygote starts, idle zygotes are ended too, and it
    waits for room, for ROOM_SECONDS at most.
    """

    def __init__(
        self,
        begin: Callable[[ZygoteSpec], Coroutine[Any, Any, Zygote]],
        kept: KeptChildren,
        *,
        idle_seconds: float,
        memory: int | None,
    ) -> None:
        self._begin = begin
        self._kept = kept
        self._idle_seconds = idle_seconds
        self._memory = memory
        self._entries: dict[ZygoteKey, PoolEntry] = {}
        self._released = asyncio.Event()
        self._tidying: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        self._stopping = False
        metrics.ZYGOTES.set_function(lambda: len(self._entries))
        self._tidying = self._tidying or asyncio.create_task(self._tidy(), name="zygotes")

    async def stop(self) -> None:
        self._stopping = True
        tidying, self._tidying = self._tidying, None
        await cancelled(*filter(None, [tidying]))
        entries, self._entries = list(self._entries.values()), {}
        await asyncio.gather(*(one.stop() for one in entries))

    @contextlib.asynccontextmanager
    async def use(self, spec: ZygoteSpec, only_run: str = "") -> AsyncIterator[Zygote]:
        """Yields a zygote that is ready, and keeps it during the block. Raises ProjectError or ChildLost when none can
        be started.
        """
        entry = await self._get((spec, only_run))
        entry.users += 1
        try:
            await asyncio.wait(
                [entry.starting]
            )  # to await the task itself would cancel it for all when one is cancelled
            if entry.starting.cancelled():
                raise ChildLost("the runner was stopped.")
            yield entry.starting.result()
        finally:
            entry.users -= 1
            entry.used_at = time.monotonic()
            self._released.set()
            if only_run and not entry.users:
                await self._drop((spec, only_run), entry)

    def usage(self) -> tuple[int, int]:
        """Returns the number of zygotes, and the memory of all of them and of idle children in bytes."""
        return len(self._entries), self._memory_used()

    def degraded(self) -> set[str]:
        """Returns the codes of what Windlass can't do with the frameworks of these zygotes."""
        return {code for zygote in self._running() for code in zygote.degraded}

    def failed_warm_ups(self) -> int:
        """Returns the number of zygotes whose framework could not run a crew as Windlass runs it."""
        return sum(zygote.failed_warm_up for zygote in self._running())

    def _running(self) -> list[Zygote]:
        return [one.zygote for one in self._entries.values() if not one.over and one.zygote is not None]

    def ready(self, spec: ZygoteSpec, only_run: str = "") -> bool:
        entry = self._entries.get((spec, only_run))
        return entry is not None and entry.starting.done() and not entry.over

    async def _get(self, key: ZygoteKey) -> PoolEntry:
        if (entry := self._usable(key)) is None:
            await self._make_room()
            entry = self._usable(key) or self._add(key)  # another task may have started it during the wait
        return entry

    def _usable(self, key: ZygoteKey) -> PoolEntry | None:
        entry = self._entries.get(key)
        return None if entry is None or entry.over else entry

    def _add(self, key: ZygoteKey) -> PoolEntry:
        if self._stopping:
            raise ChildLost("the runner is not running.")
        former = self._entries.get(key)
        self._entries[key] = PoolEntry(asyncio.create_task(self._replace(former, key[0])))
        return self._entries[key]

    async def _replace(self, former: PoolEntry | None, spec: ZygoteSpec) -> Zygote:
        if former is not None:
            await former.stop()
        return await self._begin(spec)

    async def _make_room(self) -> None:
        """Ends idle children and stops idle zygotes while all together hold too much memory. While all zygotes are in
        use, waits for ROOM_SECONDS at most: one crew with a large zygote and a long run must not stop the others.
        """
        deadline = time.monotonic() + ROOM_SECONDS
        while self._is_full():
            if await self._kept.end_oldest():
                continue
            if idle := self._longest_idle():
                await self._drop(*idle)
            elif any(entry.users for entry in self._entries.values()) and (wait := deadline - time.monotonic()) > 0:
                self._released.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._released.wait(), wait)
            else:
                return

    def _longest_idle(self) -> tuple[ZygoteKey, PoolEntry] | None:
        idle = [(key, entry) for key, entry in self._entries.items() if entry.idle]
        return min(idle, key=lambda found: found[1].used_at, default=None)

    async def _drop(self, key: ZygoteKey, entry: PoolEntry) -> None:
        if self._entries.get(key) is entry:
            del self._entries[key]
        await shielded(entry.stop())

    def _is_full(self) -> bool:
        return self._memory is not None and self._memory_used() >= self._memory

    def _memory_used(self) -> int:
        return sum(entry.memory for entry in self._entries.values()) + self._kept.memory()

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_EVERY)
            while self._is_full() and await self._kept.end_oldest():
                pass
            old = time.monotonic() - self._idle_seconds
            for key, entry in list(self._entries.items()):
                if entry.idle and entry.used_at < old:
                    with contextlib.suppress(OSError):  # a later turn stops the others
                        await self._drop(key, entry)

"""Children that have ended a run and wait for another one of the same version, in the same environment (`reuse`)."""

# See docs/decisions/runner.md#the-server-decides-which-runs-share-a-process

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windlass import log
from windlass.aio import shielded
from windlass.runner.processes import Families, Memory, all_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AsyncExitStack
    from typing import Any

    from windlass.runner.child import Child
    from windlass.runner.run_spec import RunSpec
    from windlass.runner.zygote import Zygote

IDLE_SECONDS = 60.0
"""How long an idle child is kept."""
END_SECONDS = IDLE_SECONDS + 30
"""How long an idle child lives that its server forgot. Then its lease ends it."""
MOST_AGE = 3600.0
"""Seconds after its start from which a child takes no further run."""
MOST_MEMORY = 512 << 20
"""Bytes (PSS) from which a child takes no further run. With a memory_limit, half of it if that is less."""

LEAST_LEASE = 5.0
"""Seconds. `put` gives the lease of an idle child at once to a child with less time left on that of its last run. The
others get it from `tidy`, which runs every second: most of them have another run before.
"""
GROWTH = 64 << 20
"""Bytes that the resident memory of a process may grow while it is idle. No limit of a run counts then."""

Key = tuple[object, ...]
NOTHING = Memory(0, 0)
logger = log.logger(__name__)


@dataclass(eq=False, slots=True)
class KeptChild:
    """An idle child. `life` ends it."""

    child: Child
    life: AsyncExitStack
    zygote: Zygote
    key: Key
    memory: Memory = NOTHING
    since: float = field(default_factory=time.monotonic)
    has_idle_lease: bool = False
    """Whether the child has the lease of an idle child. Before, it has that of its last run."""

    async def end(self) -> None:
        await self.child.quit()
        await self.life.aclose()


class KeptChildren:
    def __init__(self) -> None:
        self._kept: list[KeptChild] = []
        self._ending: set[asyncio.Task[None]] = set()
        self._digest_key = secrets.token_bytes(32)
        self._stopping = False

    def key_of(self, spec: RunSpec) -> Key:
        """Returns what runs that share a process have in common, besides its zygote. It has no value of a variable."""
        environment = json.dumps([sorted(spec.environment.items()), sorted(spec.secrets)]).encode()
        digest = hmac.digest(self._digest_key, environment, "sha256")
        return spec.version, spec.project, spec.digest, spec.start, digest

    def take(self, zygote: Zygote, key: Key) -> KeptChild | None:
        """Returns the child of this zygote that became idle last, for a run with this key, and keeps it no longer."""
        for kept in reversed(self._kept):
            if kept.key == key and kept.zygote is zygote:
                self._kept.remove(kept)
                if kept.child.is_idle:
                    return kept
                self._end(kept.life.aclose)
        return None

    async def put(self, kept: KeptChild, most_runs: int, memory_limit: int | None) -> None:
        """Keeps the idle child, or ends it if it has reached a bound."""
        try:
            if has_idle_lease := kept.child.seconds_leased < LEAST_LEASE:
                await kept.child.rest(END_SECONDS)
            memory = await kept.child.memory()
        except BaseException:
            await kept.life.aclose()
            raise
        most = MOST_MEMORY if memory_limit is None else min(MOST_MEMORY, memory_limit // 2)
        old = time.monotonic() - kept.child.made_at > MOST_AGE
        over = self._stopping or kept.zygote.lost
        if kept.child.runs >= most_runs or memory is None or memory.share > most or old or over:
            self._end(kept.end)
        else:
            kept.memory, kept.since, kept.has_idle_lease = memory, time.monotonic(), has_idle_lease
            self._kept.append(kept)

    def memory(self) -> int:
        """Returns the memory of all idle children in bytes."""
        return sum(kept.memory.share for kept in self._kept)

    async def end_oldest(self) -> bool:
        """Ends the child that has been idle for longest. Returns False if there is none."""
        if not self._kept:
            return False
        await shielded(self._kept.pop(0).life.aclose())
        return True

    async def end_those_of(self, zygote: Zygote) -> None:
        """Ends the idle children of a zygote that is about to be stopped."""
        await self._end_now([kept for kept in self._kept if kept.zygote is zygote])

    async def end_all(self) -> None:
        await self._end_now(self._kept)

    async def tidy(self) -> None:
        """Ends children that have been idle for long, kills those that are not idle, and forgets those that ended.
        Gives the others the lease of an idle child.
        """
        if not self._kept:
            return
        began = time.monotonic()
        families = Families(await asyncio.to_thread(all_processes))
        old = time.monotonic() - IDLE_SECONDS
        for kept in [one for one in self._kept if one.since < began]:  # others may have been seen in their runs
            if kept not in self._kept:  # it was taken while another one got its lease
                continue
            family = families.of(kept.child.process.pid, kept.child.process.started)
            if (
                len(family) > 1
                or any(one.rss > kept.memory.resident + GROWTH for one in family)
                or not kept.child.is_idle
            ):
                self._kept.remove(kept)
                self._end(kept.life.aclose)
            elif kept.since < old:
                self._kept.remove(kept)
                self._end(kept.end)
            elif not kept.has_idle_lease:
                kept.has_idle_lease = True
                await kept.child.rest(END_SECONDS)

    def start(self) -> None:
        self._stopping = False

    async def stop(self) -> None:
        """Ends all children, and any that become idle from now on."""
        self._stopping = True
        await self.end_all()
        if self._ending:
            await asyncio.wait(self._ending)

    async def _end_now(self, ended: list[KeptChild]) -> None:
        self._kept = [kept for kept in self._kept if kept not in ended]
        await shielded(self._close(ended))

    async def _close(self, ended: list[KeptChild]) -> None:
        await asyncio.gather(*(kept.life.aclose() for kept in ended))

    def _end(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(end())
        self._ending.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.event("runner.watch_failed", exc=error)

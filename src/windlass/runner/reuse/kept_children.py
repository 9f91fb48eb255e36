"""Lends children to runs, and keeps those that are idle afterwards for other runs of the same version, in the same
environment.
"""

# See docs/decisions/runner.md#the-server-decides-which-runs-share-a-process

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windlass import log
from windlass.aio import cancelled, shielded
from windlass.runner.processes import Families, Memory, all_processes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path
    from typing import Any

    from windlass.runner.cgroups import Cgroups
    from windlass.runner.place import Place
    from windlass.runner.reuse.reusable_child import ReusableChild
    from windlass.runner.run_spec import RunSpec

TIDY_EVERY = 1.0
"""Seconds."""
IDLE_SECONDS = 60.0
"""How long an idle child is kept."""
END_SECONDS = IDLE_SECONDS + 30
"""How long an idle child lives that its server forgot. Then its lease ends it."""
MOST_AGE = 3600.0
"""Seconds after its start from which a child takes no further run."""
MOST_MEMORY = 512 << 20
"""Bytes (PSS) from which a child takes no further run. With a memory_limit, half of it if that is less."""
GROWTH = 64 << 20
"""Bytes that the resident memory of a process may grow while it is idle. No limit of a run counts then."""

Key = tuple[object, ...]
logger = log.logger(__name__)


@dataclass(eq=False, slots=True)
class KeptChild:
    """`life` ends it. `folder` is the path that each of its runs has for its folder, in a folder that stays."""

    child: ReusableChild
    life: AsyncExitStack
    key: Key
    folder: Path
    memory: Memory = Memory(0, 0)  # noqa: RUF009 - it is immutable
    since: float = field(default_factory=time.monotonic)

    async def end(self) -> None:
        await self.child.quit()
        await self.life.aclose()


def remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # a folder of a run is still in it
        folder.rmdir()


async def closed(ended: list[KeptChild]) -> None:
    await asyncio.gather(*(kept.life.aclose() for kept in ended))


class KeptChildren:
    """`cgroups` are those of the runs."""

    def __init__(self, cgroups: Cgroups | None = None) -> None:
        self._cgroups = cgroups
        self._kept: list[KeptChild] = []
        self._ending: set[asyncio.Task[None]] = set()
        self._digest_key = secrets.token_bytes(32)
        self._tidying: asyncio.Task[None] | None = None
        self._stopping = False

    async def lend(
        self,
        spec: RunSpec,
        born_with: object,
        place: Place,
        stack: AsyncExitStack,
        make: Callable[[AsyncExitStack], Awaitable[ReusableChild]],
        *,
        fresh: bool,
    ) -> ReusableChild:
        """Returns a child for the run until the end of the stack: one that has run before, or a new one; with `fresh`
        always a new one. `born_with` is what a child of the run is born with. Moves the folder of the run to the
        child's path.
        """
        key = self._key_of(spec, born_with)
        kept = None if fresh else self._take(key)
        if kept is not None and not place.move(kept.folder):
            self._end(kept.life.aclose)
            kept = None
        if kept is None:
            async with AsyncExitStack() as made:
                made.callback(remove_empty, place.surround())
                kept = KeptChild(await make(made), made.pop_all(), key, place.folder)
        stack.push_async_callback(self._take_back, kept, spec, place)
        return kept.child

    async def _take_back(self, kept: KeptChild, spec: RunSpec, place: Place) -> None:
        """Keeps a child that is idle, with a free path for the folder of its next run. Ends any other one."""
        out = place.share.cgroup is None or (self._cgroups is not None and self._cgroups.take_out(kept.child.process))
        around = kept.folder.parent
        aside = around.with_name(f"{around.name}-{kept.child.runs}")  # removed beside the next run
        if kept.child.is_idle and out and place.move(aside):
            await shielded(self._put(kept, spec))
        else:
            await kept.life.aclose()
            if place.move(aside):
                remove_empty(around)

    def _key_of(self, spec: RunSpec, born_with: object) -> Key:
        """Returns what runs that share a process have in common. It has no value of a variable."""
        environment = json.dumps([sorted(spec.environment.items()), sorted(spec.secrets)]).encode()
        digest = hmac.digest(self._digest_key, environment, "sha256")
        return born_with, spec.version, spec.project, spec.digest, spec.start, digest

    def _take(self, key: Key) -> KeptChild | None:
        """Returns the child that became idle last, for a run with this key, and keeps it no longer."""
        for kept in reversed(self._kept):
            if kept.key == key:
                self._kept.remove(kept)
                if kept.child.is_idle:
                    return kept
                self._end(kept.life.aclose)
        return None

    async def _put(self, kept: KeptChild, spec: RunSpec) -> None:
        """Keeps the idle child after its run, or ends it if it has reached a bound."""
        try:
            await kept.child.rest(END_SECONDS)
            memory = await kept.child.memory()
        except BaseException:
            await kept.life.aclose()
            raise
        limit = spec.limits.memory_limit
        most = MOST_MEMORY if limit is None else min(MOST_MEMORY, limit // 2)
        old = time.monotonic() - kept.child.made_at > MOST_AGE
        if kept.child.runs >= spec.reuse or memory is None or memory.share > most or old or self._stopping:
            self._end(kept.end)
        else:
            kept.memory, kept.since = memory, time.monotonic()
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

    async def end_all(self) -> None:
        ended, self._kept = self._kept, []
        await shielded(closed(ended))

    def start(self) -> None:
        self._stopping = False
        self._tidying = self._tidying or asyncio.create_task(self._tidy(), name="idle children")

    async def stop(self) -> None:
        """Ends all children, and any that become idle from now on."""
        self._stopping = True
        tidying, self._tidying = self._tidying, None
        await cancelled(*filter(None, [tidying]))
        await self.end_all()
        if self._ending:
            await asyncio.wait(self._ending)

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_EVERY)
            if self._kept:
                await self._end_some()

    async def _end_some(self) -> None:
        """Ends children that have been idle for long, kills those that are not idle, and forgets those that ended."""
        began = time.monotonic()
        families = Families(await asyncio.to_thread(all_processes))
        for kept in [one for one in self._kept if one.since < began]:  # others may have been seen in their runs
            family = families.of(kept.child.process.pid, kept.child.process.started)
            grown = any(one.rss > kept.memory.resident + GROWTH for one in family)
            if len(family) > 1 or grown or not kept.child.is_idle:
                self._kept.remove(kept)
                self._end(kept.life.aclose)
            elif kept.since < began - IDLE_SECONDS:
                self._kept.remove(kept)
                self._end(kept.end)

    def _end(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(end())
        self._ending.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.event("runner.watch_failed", exc=error)

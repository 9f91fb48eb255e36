"""Looks at the processes of all runs, and finds out which of them are over a limit, or give no sign of life."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windlass import log
from windlass.kickoffs.limits import size_in_words
from windlass.kickoffs.outcome import Ending
from windlass.kickoffs.states import Reason, State
from windlass.runner.processes import Families, Process, all_processes, process, proportional

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from windlass.kickoffs.limits import Limits
    from windlass.runner.ender import Ender
    from windlass_crewside.messages import Born

LOOK_EVERY = 0.25
"""Seconds."""
REST = 4
"""Times as long as a look took, before the next one: with a thousand processes it takes a while."""

WHERE = "under [tool.windlass.limits] in pyproject.toml, and in the kickoff's `limits` if it set one"

logger = log.logger(__name__)


@dataclass(slots=True)
class Watched:
    """One run's child. `stalled` is called once for each silence.

    `rollup` and `stacks` are descriptors that the child has given: of its smaps_rollup, and of what it writes its
    stacks to.
    """

    pid: int
    limits: Limits
    ender: Ender
    stalled: Callable[[float], Awaitable[None]] | None = None
    rollup: int | None = None
    stacks: int | None = None
    alive_at: float = field(default_factory=time.monotonic)
    told_stall: bool = False
    family: list[Process] = field(default_factory=list)
    _waiting_to_be_heard: int = 0

    def take(self, born: Born, descriptors: list[int]) -> None:
        """Those of files are kept; to read from anything else could take for ever."""
        for kept, descriptor in zip(given(born), descriptors, strict=False):
            if stat.S_ISREG(os.fstat(descriptor).st_mode) and getattr(self, kept) is None:
                setattr(self, kept, descriptor)
            else:
                os.close(descriptor)

    def close(self) -> None:
        for descriptor in (self.rollup, self.stacks):
            if descriptor is not None:
                os.close(descriptor)
        self.rollup = self.stacks = None

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """A sign of life; as long as the block takes, it is the worker that is silent."""
        self._waiting_to_be_heard += 1
        try:
            yield
        finally:
            self._waiting_to_be_heard -= 1
            self.alive_at = time.monotonic()
            self.told_stall = False

    def over_a_limit(self) -> Ending | None:
        return self._too_many_processes() or self._too_much_memory()

    def silence(self) -> float | None:
        """Seconds of it, when they have become too many and nobody was told."""
        after, silent = self.limits.stall_after, time.monotonic() - self.alive_at
        if after is None or silent <= after or self.told_stall or self._waiting_to_be_heard:
            return None
        return silent

    def _too_many_processes(self) -> Ending | None:
        limit, count = self.limits.process_limit, len(self.family)
        if limit is None or count <= limit:
            return None
        return over(f"the run had {count} processes; its process_limit is {limit}. Raise process_limit {WHERE}.")

    def _too_much_memory(self) -> Ending | None:
        limit = self.limits.memory_limit
        # what is shared is counted whole here, so that mostly there is no need to ask further, which takes longer
        if limit is None or sum(one.rss for one in self.family) <= limit or (used := self.memory()) <= limit:
            return None
        return over(
            f"the run used {size_in_words(used)} of memory, more than its memory_limit of {size_in_words(limit)}. "
            f"Raise memory_limit {WHERE}."
        )

    def memory(self) -> int:
        """In bytes. Of a process whose share can't be told, what it has that this run's first process has not."""
        first = next((one.rss for one in self.family if one.pid == self.pid), 0)
        shares = ((one, proportional(one.pid, self.rollup if one.pid == self.pid else None)) for one in self.family)
        return sum(max(one.rss - first, 0) if share is None else share for one, share in shares)


def given(born: Born) -> list[str]:
    return [name for name, is_there in (("rollup", born.memory), ("stacks", born.stacks)) if is_there]


def over(error: str) -> Ending:
    """No time is given to what grows: it may take the machine down."""
    return Ending(State.FAILED, Reason.LIMIT, error, at_once=True)


def measured(all_watched: list[Watched]) -> list[Ending | None]:
    """In a thread: reading the memory of many processes takes long."""
    families = Families(all_processes())
    for watched in all_watched:
        watched.family = families.of(watched.pid)
    return [watched.over_a_limit() for watched in all_watched]


class Watch:
    def __init__(self) -> None:
        self._watched: dict[int, Watched] = {}
        self._someone = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._task = self._task or asyncio.create_task(self._look_again_and_again(), name="watch")

    async def stop(self) -> None:
        tasks = [*self._telling, *([self._task] if self._task else [])]
        self._task = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextlib.contextmanager
    def over(self, watched: Watched) -> Iterator[None]:
        self._watched[watched.pid] = watched
        self._someone.set()
        try:
            yield
        finally:
            self._watched.pop(watched.pid, None)
            watched.close()

    async def _look_again_and_again(self) -> None:
        with ThreadPoolExecutor(1, "windlass-watch") as own_thread:  # those of all may all wait for a disk
            await self._look_by(own_thread)

    async def _look_by(self, thread: ThreadPoolExecutor) -> None:
        while True:
            if not self._watched:
                self._someone.clear()
                await self._someone.wait()
            began = time.monotonic()
            try:
                await self._look(thread)
            except Exception as error:  # noqa: BLE001 - one turn of a loop
                logger.event("runner.watch_failed", exc=error)
            await asyncio.sleep(max(LOOK_EVERY, REST * (time.monotonic() - began)))

    async def _look(self, thread: ThreadPoolExecutor) -> None:
        all_watched = list(self._watched.values())
        endings = await asyncio.get_running_loop().run_in_executor(thread, measured, all_watched)
        for watched, ending in zip(all_watched, endings, strict=True):
            if ending is not None:
                watched.ender.end(ending)
            if watched.stalled is not None and (seconds := watched.silence()) is not None:
                watched.told_stall = True
                self._tell(watched.stalled(seconds))

    def _tell(self, telling: Awaitable[None]) -> None:
        task = asyncio.ensure_future(telling)
        self._telling.add(task)
        task.add_done_callback(self._told)

    def _told(self, task: asyncio.Task[None]) -> None:
        self._telling.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.event("runner.watch_failed", exc=error)


def end_family(family: list[Process]) -> None:
    """Kills what was seen of a run, for one whose zygote is gone and can't do it. Others that have their process ids by
    now are left alone.
    """
    for one in family:
        now = process(one.pid)
        if now is not None and now.started == one.started:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one.pid, signal.SIGKILL)

"""Measures the processes of all runs, and finds the runs that are over a limit or silent."""

# See docs/decisions/runner.md#memory-is-compared-as-resident-size-first

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from windlass import log
from windlass.kickoffs.limits import WHERE
from windlass.kickoffs.outcome import Termination
from windlass.kickoffs.states import Reason, State
from windlass.runner.descriptors import is_in_memory, is_rollup
from windlass.runner.processes import Families, Process, all_processes, proportional, stop_family
from windlass.runner.shared_memory import SharedMemory, mapped_files
from windlass_child.protocol.sizes import size_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass.kickoffs.limits import Limits
    from windlass.runner.cgroups import Cgroup, OutOfMemory
    from windlass.runner.run_context import Terminator
    from windlass.runner.run_spec import Report
    from windlass.runner.scratch import DiskUse
    from windlass.runner.shared_memory import File, Share
    from windlass_child.protocol.messages import Born

LOOK_EVERY = 0.25
"""Seconds."""
LOOK_AT_DISKS_EVERY = 0.5
"""Seconds."""
REST = 4
"""The pause before the next look is at least this many times the duration of the last one. A look at a thousand
processes takes long.
"""

Look = Callable[[ThreadPoolExecutor], Awaitable[None]]

logger = log.logger(__name__)


@dataclass(slots=True)
class WatchedRun:
    """The child of one run, with its limits.

    The monitor's thread stops processes only before `end`, which the run's task calls when the child has ended or is
    idle: afterwards the processes may be those of the child's next run.

    `stalled` is called once for each silence. With `cgroup` the kernel bounds the memory of the run, and its memory is
    not polled. `rollup` and `stacks` are descriptors that the child has sent: of its smaps_rollup, and of the file that
    it writes its stacks to. `user` is the user that the run's processes must have, None for any. `pid` and `started`
    (Process.started) together identify the child for good.
    """

    pid: int
    limits: Limits
    terminator: Terminator
    stalled: Callable[[float], Awaitable[None]] | None = None
    rollup: int | None = None
    stacks: int | None = None
    started: int | None = None
    disk: DiskUse | None = None
    share: Share | None = None
    user: int | None = None
    cgroup: Cgroup | None = None
    shared: dict[File, int] = field(default_factory=dict)
    alive_at: float = field(default_factory=time.monotonic)
    stall_reported: bool = False
    family: list[Process] = field(default_factory=list)
    _reports_in_progress: int = 0
    _deciding: threading.Lock = field(default_factory=threading.Lock)
    _stopped_by: Termination | None = None
    _ended: bool = False

    def take(self, born: Born, descriptors: list[int]) -> list[int]:
        """Keeps the descriptors that are of the kinds that `born` names, and returns the others. To use the others, or
        only to close them, could block for ever.
        """
        refused = []
        for kept, descriptor in itertools.zip_longest(given(born)[: len(descriptors)], descriptors):
            if kept is not None and getattr(self, kept) is None and self._is_genuine(kept, descriptor):
                setattr(self, kept, descriptor)
            else:
                refused.append(descriptor)
        return refused

    def _is_genuine(self, name: str, descriptor: int) -> bool:
        return is_rollup(descriptor, self.pid) if name == "rollup" else is_in_memory(descriptor)

    def close(self) -> None:
        for descriptor in (self.rollup, self.stacks):
            if descriptor is not None:
                os.close(descriptor)
        self.rollup = self.stacks = None

    def noting_life(self, report: Report) -> Report:
        """Returns `report` with a sign of life at each call. A run whose report waits to be written is not silent."""

        async def report_and_note(message: object) -> None:
            self._reports_in_progress += 1
            try:
                await report(message)  # type: ignore[arg-type]  # passed on unchanged
            finally:
                self._reports_in_progress -= 1
                self.alive_at = time.monotonic()
                self.stall_reported = False

        return report_and_note

    def over_process_limit(self) -> Termination | None:
        """Stops all processes of the run if they are too many, so that they start no others until they are killed.

        Does nothing after `end`.
        """
        limit = self.limits.process_limit
        if limit is None or len(self.family) <= limit or not self._decides(self._too_many(len(self.family), limit)):
            return None
        found = self._stopped_by = self._too_many(stop_family(self.family, self.user), limit)
        return found

    @staticmethod
    def _too_many(count: int, limit: int) -> Termination:
        return over(f"the run had {count} processes; its process_limit is {limit}. Raise process_limit {WHERE}.")

    def _decides(self, termination: Termination) -> bool:
        """Returns whether the run goes on. Then `end` will return this termination."""
        with self._deciding:
            if not self._ended:
                self._stopped_by = termination
            return not self._ended

    def end(self) -> Termination | None:
        """Ends the supervision of the run. Returns a termination if the monitor has begun to stop its processes: then
        they must be killed, and the child takes no other run.
        """
        with self._deciding:
            self._ended = True
            return self._stopped_by

    def take_into_cgroup(self) -> None:
        """Moves the processes of the run into its cgroup. Moves none after `end`: the removal of the cgroup kills all
        that is in it.
        """
        if self.cgroup is None:
            return
        for one in self.cgroup.outside(self.family):
            with self._deciding:  # for one move only, because `end` waits for it
                if self._ended:
                    return
                self.cgroup.take(one)

    def silence(self) -> float | None:
        """Returns the seconds of silence when they are over `stall_after` and the stall is not reported yet."""
        after, silent = self.limits.stall_after, time.monotonic() - self.alive_at
        if after is None or silent <= after or self.stall_reported or self._reports_in_progress:
            return None
        return silent

    def over_memory_limit(self) -> Termination | None:
        limit = self.limits.memory_limit if self.cgroup is None else None
        # This sum counts shared memory as a whole. Only a sum over the limit needs `memory`, which takes longer.
        most = sum(one.rss for one in self.family) + sum(self.shared.values())
        if limit is None or most <= limit or (used := self.memory()) <= limit:
            return None
        return over(
            f"the run used {size_in_words(used)} of memory, more than its memory_limit of {size_in_words(limit)}. "
            f"Raise memory_limit {WHERE}."
        )

    def memory(self) -> int:
        """Returns the memory of the run in bytes, with the shared memory that no process of the run has mapped."""
        shared = sum(self.shared.values())
        mapped = self._mapped() if shared else 0
        return self._proportional() + max(shared - mapped, 0)

    def _mapped(self) -> int:
        """Returns the bytes of `shared` that `_proportional` counts."""
        files = (mapped_files(one.pid) for one in self.family)
        return sum(size for found in files for file, size in found.items() if file in self.shared)

    def _proportional(self) -> int:
        """Returns the sum of the proportional shares in bytes. A process whose share is unknown counts with its memory
        above that of the run's first process.
        """
        first = next((one.rss for one in self.family if one.pid == self.pid), 0)
        shares = ((one, proportional(one.pid, self.rollup if one.pid == self.pid else None)) for one in self.family)
        return sum(max(one.rss - first, 0) if share is None else share for one, share in shares)


def given(born: Born) -> list[str]:
    return [name for name, is_there in (("rollup", born.memory), ("stacks", born.stacks)) if is_there]


def out_of_memory(found: OutOfMemory, limits: Limits) -> Termination:
    """Returns the termination for the kills that the kernel has counted in the run's cgroup."""
    killed = f"the kernel's out-of-memory killer ended it (memory.events: oom_kill {found.kills})"
    if found.own:
        size = size_in_words(limits.memory_limit or 0)
        return over(f"the run used more memory than its memory_limit of {size}: {killed}. Raise memory_limit {WHERE}.")
    words = (
        f"the machine, or the server's container, ran out of memory: {killed}. Run fewer crews at once, or add memory."
    )
    return Termination(State.FAILED, Reason.CRASHED, words, at_once=True)


def over(error: str) -> Termination:
    """Returns a termination at once, without grace time: a run that grows may take the machine down."""
    return Termination(State.FAILED, Reason.LIMIT, error, at_once=True)


def measured(all_watched: list[WatchedRun], shared_memory: SharedMemory) -> list[Termination | None]:
    """Measures all runs, and returns a termination for each run that is over a limit. Call it in a thread: reading the
    memory of many processes takes long.
    """
    families = Families(all_processes())
    for watched in all_watched:
        watched.family = families.of(watched.pid, watched.started)
    # Before anything is read of each process: that takes long, and a fork bomb grows meanwhile.
    bombs = {watched.pid: found for watched in all_watched if (found := watched.over_process_limit())}
    others = [watched for watched in all_watched if watched.pid not in bombs]
    for watched in others:
        watched.take_into_cgroup()
    shared_memory.measure([(watched.share, watched.family) for watched in others if watched.share])
    for watched in others:
        watched.shared = shared_memory.size_of(watched.share) if watched.share else {}
    return [bombs.get(watched.pid) or watched.over_memory_limit() for watched in all_watched]


def disks_measured(all_watched: list[WatchedRun]) -> list[Termination | None]:
    """Measures the folders of all runs. Call it in a thread of its own: a slow disk must not delay the measurement of
    memory and processes.
    """
    errors = (watched.disk.over_a_limit() if watched.disk else None for watched in all_watched)
    return [over(error) if error else None for error in errors]


class ResourceMonitor:
    def __init__(self) -> None:
        self._watched: dict[int, WatchedRun] = {}
        self._someone = asyncio.Event()
        self.shared_memory = SharedMemory()
        self._tasks: list[asyncio.Task[None]] = []
        self._stall_reports: set[asyncio.Future[None]] = set()

    @property
    def tasks(self) -> int:
        """The number of processes and threads of all runs, at the last look."""
        return sum(one.threads for watched in self._watched.values() for one in watched.family)

    async def start(self) -> None:
        if not self._tasks:
            looks = {"watch": (self._look, LOOK_EVERY), "watch-disks": (self._look_at_disks, LOOK_AT_DISKS_EVERY)}
            self._tasks = [
                asyncio.create_task(self._repeat(name, look, every), name=name) for name, (look, every) in looks.items()
            ]

    async def stop(self) -> None:
        tasks = [*self._stall_reports, *self._tasks]
        self._tasks = []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextlib.contextmanager
    def over(self, watched: WatchedRun) -> Iterator[None]:
        self._watched[watched.pid] = watched
        self._someone.set()
        try:
            yield
        finally:
            self._watched.pop(watched.pid, None)
            watched.close()

    async def _repeat(self, name: str, look: Look, every: float) -> None:
        with ThreadPoolExecutor(1, f"windlass-{name}") as own_thread:  # all shared threads may wait for a disk
            while True:
                if not self._watched:
                    self._someone.clear()
                    await self._someone.wait()
                began = time.monotonic()
                try:
                    await look(own_thread)
                except Exception as error:  # noqa: BLE001 - one turn of a loop
                    logger.event("runner.watch_failed", exc=error)
                await asyncio.sleep(max(every, REST * (time.monotonic() - began)))

    async def _look_at_disks(self, thread: ThreadPoolExecutor) -> None:
        all_watched = list(self._watched.values())
        terminations = await asyncio.get_running_loop().run_in_executor(thread, disks_measured, all_watched)
        for watched, termination in zip(all_watched, terminations, strict=True):
            if termination is not None:
                watched.terminator.end(termination)

    async def _look(self, thread: ThreadPoolExecutor) -> None:
        all_watched = list(self._watched.values())
        terminations = await asyncio.get_running_loop().run_in_executor(
            thread, measured, all_watched, self.shared_memory
        )
        for watched, termination in zip(all_watched, terminations, strict=True):
            if termination is not None:
                watched.terminator.end(termination)
            if watched.stalled is not None and (seconds := watched.silence()) is not None:
                watched.stall_reported = True
                self._report_stall(watched.stalled(seconds))

    def _report_stall(self, report: Awaitable[None]) -> None:
        task = asyncio.ensure_future(report)
        self._stall_reports.add(task)
        task.add_done_callback(partial(_logged, self._stall_reports))


def _logged(group: set[asyncio.Future[None]], done: asyncio.Future[None]) -> None:
    """Takes work that is done out of its group, and logs its error."""
    group.discard(done)
    if not done.cancelled() and (error := done.exception()):
        logger.event("runner.watch_failed", exc=error)

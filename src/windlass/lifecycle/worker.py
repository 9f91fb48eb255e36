"""Claims kickoffs, renews their leases, stops their runs, and reaps those of other workers."""

# See docs/decisions/queue.md#a-worker-checks-its-folders-before-a-claim

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from windlass import log, metrics
from windlass.aio import cancelled
from windlass.errors import DatabaseUnavailable
from windlass.kickoffs.ids import accepted_at, new_id
from windlass.kickoffs.states import State
from windlass.lifecycle.background_tasks import BackgroundTasks
from windlass.lifecycle.journal import PURPOSE
from windlass.lifecycle.notices import Notices
from windlass.lifecycle.run import Run
from windlass.lifecycle.slots import Slots
from windlass.runner import LeaseHandle, boottime
from windlass.store.claiming import AT_ONCE, FIRST, WorkerUsage
from windlass.store.listener import ANSWERS, KICKOFFS, STOPS, Listener

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.lifecycle.worker_config import Environment, Observer, WorkerConfig
    from windlass.runner import Runner
    from windlass.secrets.key_ring import KeyRing
    from windlass.store.claiming import Claimed
    from windlass.store.kickoffs import KickoffStore

MARGIN = 0.1
"""Runs must end this fraction of the lease, at most 1 s, before the lease does, because ending processes takes time."""

LOOK_AGAIN = 1.0
"""Seconds between two searches for waiting kickoffs without a notification. A notification can be lost with its
connection.
"""
SHUTDOWN_SECONDS = 3.0
"""The time limit in seconds of each of the two phases of a stop: writing the outcomes of ended runs, and releasing the
other kickoffs. The leases of kickoffs that are not released expire.
"""

MOST_RECENT = 100
"""Deployments whose order of starts a worker remembers. The one that started least recently has the next turn, when
several have the same share of the slots.
"""

BETWEEN_PROMOTIONS = 0.5
"""Seconds between two searches for kickoffs whose start time has come, or whose concurrency key is free."""

logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class Running:
    run: Run
    task: asyncio.Task[None]

    def end(self) -> None:
        """Cancels the run, unless the crew has ended: its result may be expensive to compute again."""
        if self.run.over:
            self.run.files.hurry()
        else:
            self.task.cancel()


class Worker:
    """Claims kickoffs while slots are free, runs them, renews their leases, and stops them on request.

    It also requeues or fails kickoffs whose worker did not renew their leases in time (`reap`). `observers` watch all
    runs. `BackgroundTasks` repeats `_claim`, `_keep_leases` and `_promote` until the worker stops, and waits before the
    next turn when one raises DatabaseUnavailable.
    """

    def __init__(
        self,
        store: KickoffStore,
        listener: Listener,
        runner: Runner,
        environment: Environment,
        key_ring: KeyRing,
        config: WorkerConfig,
        *,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.id: UUID = new_id()
        self._store = store
        self._runner = runner
        self._environment = environment
        self._key_ring = key_ring.for_purpose(PURPOSE)
        self._config = config
        self._observers = observers
        self._runs: dict[tuple[UUID, int], Running] = {}
        self._renewing: dict[tuple[UUID, int], asyncio.Task[None]] = {}
        self._stop_requests: set[UUID] = set()
        self._answers = Notices(listener, ANSWERS)
        self._keys_from = FIRST
        self._notified = asyncio.Event()
        self._recent: list[UUID] = []
        self._slots = Slots(config.slots, on_free=self._notified.set)
        self._draining = False
        self._is_able = True
        """False while the worker could not make the folder of a run."""
        self._claiming = BackgroundTasks(self._claim)
        self._upkeep = BackgroundTasks(self._keep_leases, self._promote)
        listener.on(KICKOFFS, lambda _: self._notified.set())
        listener.on(STOPS, lambda kickoff: self._on_stop(UUID(kickoff)))
        listener.on_gap(self._notified.set)

    @property
    def claiming(self) -> bool:
        return self._claiming.running and self._upkeep.running

    async def start(self) -> None:
        metrics.RUNNING.set_function(lambda: self._slots.used)
        await self._upkeep.start()
        await self._claiming.start()

    async def drain(self, seconds: float, stop_now: asyncio.Event) -> None:
        """Stops claiming, and waits until the runs of this worker have ended.

        Waits for at most `seconds`, or until `stop_now` is set. The leases are renewed meanwhile.
        """
        self._draining = True
        await self._claiming.stop()
        with suppress(DatabaseUnavailable):
            # kickoffs that a cancelled claim took in the database, and that did not start here
            await self._release([kickoff for kickoff, _ in self._runs])
        if self._runs and seconds > 0 and not stop_now.is_set():
            logger.event("worker.draining", runs=len(self._runs), seconds=seconds)
            stopped = asyncio.create_task(stop_now.wait())
            ended = asyncio.create_task(self._until_idle())
            await asyncio.wait({stopped, ended}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            await cancelled(stopped, ended)

    async def _until_idle(self) -> None:
        while tasks := [running.task for running in self._runs.values()]:
            await asyncio.wait(tasks)

    async def stop(self) -> None:
        """Ends the runs of this worker and releases their kickoffs. All runs have ended when it returns."""
        await self._claiming.stop()
        await self._end_runs()
        await self._upkeep.stop()
        await cancelled(*self._renewing.values())
        with suppress(TimeoutError, DatabaseUnavailable):
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                await self._release([])
                await self._store.workers.leave(self.id)

    async def _end_runs(self) -> None:
        tasks = [running.task for running in self._runs.values()]
        for running in list(self._runs.values()):
            running.end()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=SHUTDOWN_SECONDS)
            await cancelled(*late)

    async def _release(self, except_for: Sequence[UUID]) -> None:
        for kickoff, attempt, state in await self._store.release(self.id, except_for):
            if state is State.PENDING:
                logger.event("kickoff.released", kickoff_id=kickoff, attempt=attempt)
            else:
                logger.event("kickoff.ended", kickoff_id=kickoff, attempt=attempt, state=state)

    async def _claim(self) -> None:
        free = self._slots.free(len(self._runs))
        self._is_able = free <= 0 or await self._config.fault() is None
        if not self._is_able:  # each attempt would end before its process starts
            free = 0
        self._stop_requests.clear()
        until = self._leased_until()
        claimed = await self._claimed(free) if free > 0 else []
        found = len(claimed)
        while claimed and until - boottime() < self._config.lease / 2:
            until, claimed = await self._renewed(claimed)
        for kickoff in claimed:
            try:
                self._begin(kickoff, until)
            except Exception as error:  # noqa: BLE001 - its lease ends; the others of this claim run
                logger.event("worker.run_failed", kickoff_id=kickoff.id, attempt=kickoff.attempt, exc=error)
                continue
            if kickoff.stop_requested or kickoff.id in self._stop_requests:
                self._on_stop(kickoff.id)
        if found < free or free <= 0:
            await self._wait_for_notification()

    async def _claimed(self, free: int) -> list[Claimed]:
        """Claims at most `free` kickoffs. `_recent` has the deployments in the order of their last starts."""
        claimed = await self._store.claim(
            self.id,
            free,
            self._config.lease,
            only=self._config.deployments,
            excluded=self._config.excluded,
            ended=[kickoff for (kickoff, _), running in self._runs.items() if running.run.slot.offered],
            recent=self._recent,
        )
        started = dict.fromkeys(kickoff.deployment_id for kickoff in claimed)
        self._recent = [*(one for one in self._recent if one not in started), *started][-MOST_RECENT:]
        return claimed

    async def _renewed(self, claimed: Sequence[Claimed]) -> tuple[float, list[Claimed]]:
        """Renews the leases of a claim that took long, so that no run begins with a lease that is about to end.

        Returns the new end, and the kickoffs that are still this worker's.
        """
        until = self._leased_until()
        ours = await self._store.renew(self.id, [kickoff.id for kickoff in claimed], self._config.lease)
        for (kickoff, _), stop_requested in ours.items():
            if stop_requested:
                self._stop_requests.add(kickoff)
        return until, [kickoff for kickoff in claimed if (kickoff.id, kickoff.attempt) in ours]

    def _leased_until(self) -> float:
        """Returns the local deadline of a lease that is requested now. It is earlier than the database's."""
        return boottime() + self._config.lease - min(1.0, self._config.lease * MARGIN)

    def _on_stop(self, kickoff: UUID) -> None:
        self._stop_requests.add(kickoff)  # a kickoff that is being claimed is not in `_runs` yet
        for (kickoff_id, _), running in self._runs.items():
            if kickoff_id == kickoff:
                running.run.stop()

    async def _wait_for_notification(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN):
                await self._notified.wait()
        self._notified.clear()

    def _begin(self, claimed: Claimed, until: float) -> None:
        metrics.CLAIMED.inc()
        if claimed.attempt == 1:
            metrics.WAITED.observe(max(0.0, time.time() - accepted_at(claimed.id)))
        logger.event("kickoff.started", kickoff_id=claimed.id, deployment=claimed.slug, attempt=claimed.attempt)
        key = (claimed.id, claimed.attempt)
        run = Run(
            claimed,
            self._store,
            self._runner,
            LeaseHandle(until),
            self._key_ring,
            self._config,
            observers=self._observers,
            slots=self._slots,
            answers=self._answers,
        )
        task = asyncio.create_task(self._run(run), name=f"kickoff {claimed.id}")
        self._runs[key] = Running(run, task)
        task.add_done_callback(lambda _: self._forget(key))

    def _forget(self, key: tuple[UUID, int]) -> None:
        if (ended := self._runs.pop(key, None)) is not None:
            ended.run.slot.release()  # also that of a run that was cancelled before its first step
        self._notified.set()

    async def _run(self, run: Run) -> None:
        try:
            await run(self._environment)
        except Exception as error:  # noqa: BLE001 - an error of one run must not end the worker
            logger.event("worker.run_failed", kickoff_id=run.claimed.id, attempt=run.claimed.attempt, exc=error)
            await run.lose(
                f"the worker could not run the kickoff ({type(error).__name__}). See the server's log for the cause."
            )

    async def _keep_leases(self) -> None:
        # The worker renews its own leases before it reaps: after a long outage of the database they have expired, and
        # it would reap its own kickoffs.
        await self._renew()
        await self._reap()
        await self._expire_questions()
        await self._store.workers.seen(
            self.id,
            slots=0 if self._draining or not self._is_able else self._config.slots,
            lease=self._config.lease,
            deployments=self._config.deployments,
            excluded=self._config.excluded,
            usage=WorkerUsage(self._slots.used, *self._runner.zygotes()),
            boundary=self._runner.boundary,
        )
        await asyncio.sleep(self._config.renewal)

    async def _renew(self) -> None:
        before = dict(self._runs)
        if not before:
            return
        until = self._leased_until()
        ours = await self._store.renew_unlocked(self.id, [kickoff for kickoff, _ in before], self._config.lease)
        for key, running in before.items():
            if key in ours and ours[key] is None:
                self._renew_apart(key, running)
            else:
                _note_renewal(running, until, ours.get(key))

    def _renew_apart(self, key: tuple[UUID, int], running: Running) -> None:
        """Renews the lease of one kickoff when the lock of its row is free. The other leases do not wait for it."""
        if key not in self._renewing:
            self._renewing[key] = asyncio.create_task(self._renew_one(key, running))
            self._renewing[key].add_done_callback(lambda _: self._renewing.pop(key, None))

    async def _renew_one(self, key: tuple[UUID, int], running: Running) -> None:
        until = self._leased_until()
        with suppress(DatabaseUnavailable):  # the next turn tries again
            ours = await self._store.renew(self.id, [key[0]], self._config.lease)
            _note_renewal(running, until, ours.get(key))

    async def _reap(self) -> None:
        renewing = [kickoff for kickoff, _ in self._renewing]  # their rows were locked, and may not be any more
        for kickoff, state in await self._store.reap(renewing, max_losses=self._config.max_losses):
            logger.event(
                "kickoff.lost", kickoff_id=kickoff, why="its worker's lease ended", again=state is State.PENDING
            )

    async def _expire_questions(self) -> None:
        for expired in await self._store.expire_questions():
            logger.event("question.expired", kickoff_id=expired.kickoff_id, answered=expired.answer is not None)

    async def _promote(self) -> None:
        turn = await self._store.promote(self._keys_from)
        self._keys_from = turn.last
        if turn.count < AT_ONCE:
            await asyncio.sleep(BETWEEN_PROMOTIONS)


def _note_renewal(running: Running, until: float, stop_requested: bool | None) -> None:
    """Extends the lease of the run. `stop_requested` is None when the kickoff is no longer this worker's."""
    if stop_requested is None:
        running.end()  # another worker may run the kickoff by now
        return
    running.run.lease_handle.extend(until)
    if stop_requested:
        running.run.stop()  # the notification of the stop may have been lost

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from windlass import log
from windlass.errors import DatabaseUnavailable
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.states import State
from windlass.lifecycle.journal import PURPOSE
from windlass.lifecycle.loops import Loops
from windlass.lifecycle.run import Environment, Run, Watcher, unwatched
from windlass.runner import Tether, boottime
from windlass.store.cancelling import cancelled
from windlass.store.claiming import AT_ONCE, FIRST
from windlass.store.listener import KICKOFFS, STOPS, Listener

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.runner import Runner
    from windlass.store.kickoffs import Claimed, KickoffStore
    from windlass.vault.key_ring import KeyRing

MARGIN = 0.1
"""Share of the lease, a second at most, by which its runs end before it does: ending them takes a moment."""

LOOK_AGAIN = 1.0
"""Seconds after which waiting kickoffs are looked for without having been called: a call can be lost with its
connection.
"""
LAST_WORDS = 3.0
"""Seconds that a stopping worker has to write what has ended, and again to give the rest back; after that their leases
end by themselves.
"""

BETWEEN_PROMOTIONS = 0.5
"""Seconds between looks for kickoffs whose time has come, or whose key is free."""

logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class Running:
    run: Run
    task: asyncio.Task[None]

    def end(self) -> None:
        """Unless the crew has come to its end: its outcome is kept, for it may have cost much."""
        if not self.run.over:
            self.task.cancel()


class Worker:
    """Claims kickoffs while slots are free, runs them, stops those that are to stop, renews their leases, and takes
    over those of silent workers. `limits` are for runs whose deployment sets none.
    """

    def __init__(
        self,
        store: KickoffStore,
        listener: Listener,
        runner: Runner,
        environment: Environment,
        key_ring: KeyRing,
        *,
        slots: int,
        lease: float,
        renewal: float,
        max_losses: int,
        limits: Limits | None = None,
    ) -> None:
        self.id: UUID = new_id()
        self._store = store
        self._runner = runner
        self._environment = environment
        self._key_ring = key_ring.for_purpose(PURPOSE)
        self._slots, self._lease, self._renewal, self._max_losses = slots, lease, renewal, max_losses
        self._limits = limits or Limits()
        self.watcher: Watcher = unwatched
        self._runs: dict[tuple[UUID, int], Running] = {}
        self._stops_heard: set[UUID] = set()
        self._keys_from = FIRST
        self._called = asyncio.Event()
        self._draining = False
        self._claiming = Loops(self._claim)
        self._upkeep = Loops(self._keep_leases, self._promote)
        listener.on(KICKOFFS, lambda _: self._called.set())
        listener.on(STOPS, lambda kickoff: self._hear_stop(UUID(kickoff)))
        listener.on_gap(self._called.set)

    @property
    def claiming(self) -> bool:
        return self._claiming.running and self._upkeep.running

    async def start(self) -> None:
        await self._upkeep.start()
        await self._claiming.start()

    async def drain(self, seconds: float, hurry: asyncio.Event) -> None:
        """Claims nothing more, and waits until what runs here has ended, or for `seconds`, or until there is a hurry.
        Its leases are renewed meanwhile.
        """
        self._draining = True
        await self._claiming.stop()
        with suppress(DatabaseUnavailable):
            await self._release([kickoff for kickoff, _ in self._runs])  # a claim that was under way
        if self._runs and seconds > 0 and not hurry.is_set():
            logger.event("worker.draining", runs=len(self._runs), seconds=seconds)
            hurried = asyncio.create_task(hurry.wait())
            ended = asyncio.create_task(self._until_idle())
            await asyncio.wait({hurried, ended}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            await cancelled(hurried, ended)

    async def _until_idle(self) -> None:
        while tasks := [running.task for running in self._runs.values()]:
            await asyncio.wait(tasks)

    async def stop(self) -> None:
        """Ends what runs here and gives it back; complete when it returns."""
        await self._claiming.stop()
        await self._end_runs()
        await self._upkeep.stop()
        with suppress(TimeoutError, DatabaseUnavailable):
            async with asyncio.timeout(LAST_WORDS):
                await self._release([])
                await self._store.workers.leave(self.id)

    async def _end_runs(self) -> None:
        tasks = [running.task for running in self._runs.values()]
        for running in list(self._runs.values()):
            running.end()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=LAST_WORDS)
            await cancelled(*late)

    async def _release(self, running: Sequence[UUID]) -> None:
        for kickoff, attempt, state in await self._store.release(self.id, running):
            if state is State.PENDING:
                logger.event("kickoff.released", kickoff_id=kickoff, attempt=attempt)
            else:
                logger.event("kickoff.ended", kickoff_id=kickoff, attempt=attempt, state=state)

    async def _claim(self) -> None:
        free = self._slots - len(self._runs)
        self._stops_heard.clear()
        until = self._leased_until()
        claimed = await self._store.claim(self.id, free, self._lease) if free > 0 else []
        for kickoff in claimed:
            self._begin(kickoff, until)
            if kickoff.stop_requested or kickoff.id in self._stops_heard:
                self._hear_stop(kickoff.id)
        if len(claimed) < free or free == 0:
            await self._call()

    def _leased_until(self) -> float:
        """Of a lease that is asked for now: it ends here before it does in the database."""
        return boottime() + self._lease - min(1.0, self._lease * MARGIN)

    def _hear_stop(self, kickoff: UUID) -> None:
        self._stops_heard.add(kickoff)  # one that is being claimed just now is not in `_runs` yet
        for (running, _), started in self._runs.items():
            if running == kickoff:
                started.run.stop()

    async def _call(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN):
                await self._called.wait()
        self._called.clear()

    def _begin(self, claimed: Claimed, until: float) -> None:
        logger.event("kickoff.started", kickoff_id=claimed.id, deployment=claimed.slug, attempt=claimed.attempt)
        key = (claimed.id, claimed.attempt)
        tether = Tether(until)
        run = Run(
            claimed,
            self._store,
            self._runner,
            tether,
            self._key_ring,
            max_losses=self._max_losses,
            limits=self._limits,
            watcher=self.watcher,
        )
        task = asyncio.create_task(self._run(run), name=f"kickoff {claimed.id}")
        self._runs[key] = Running(run, task)
        task.add_done_callback(lambda _: self._end(key))

    def _end(self, key: tuple[UUID, int]) -> None:
        self._runs.pop(key, None)
        self._called.set()

    async def _run(self, run: Run) -> None:
        try:
            await run(self._environment)
        except Exception as error:  # noqa: BLE001 - one kickoff's trouble is not the worker's
            logger.event("worker.run_failed", kickoff_id=run.claimed.id, attempt=run.claimed.attempt, exc=error)
            await run.lose(f"the worker could not run it ({type(error).__name__}); its log says why.")

    async def _keep_leases(self) -> None:
        # Its own first: when the database was away for long, they have ended, and nobody but itself is there to reap.
        await self._renew()
        await self._reap()
        await self._store.workers.seen(self.id, slots=0 if self._draining else self._slots, lease=self._lease)
        await asyncio.sleep(self._renewal)

    async def _renew(self) -> None:
        before = dict(self._runs)
        if not before:
            return
        until = self._leased_until()
        ours = await self._store.renew(self.id, [kickoff for kickoff, _ in before], self._lease)
        for key, running in before.items():
            if key not in ours:
                running.end()  # another worker may have it by now
                continue
            running.run.tether.extend(until)
            if ours[key]:
                running.run.stop()  # nobody may have heard it being told

    async def _reap(self) -> None:
        for kickoff, state in await self._store.reap(max_losses=self._max_losses):
            logger.event(
                "kickoff.lost", kickoff_id=kickoff, why="its worker's lease ended", again=state is State.PENDING
            )

    async def _promote(self) -> None:
        turn = await self._store.promote(self._keys_from)
        self._keys_from = turn.last
        if turn.count < AT_ONCE:
            await asyncio.sleep(BETWEEN_PROMOTIONS)

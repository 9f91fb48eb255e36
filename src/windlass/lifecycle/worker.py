from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from windlass import log
from windlass.errors import DatabaseUnavailable
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.states import State
from windlass.lifecycle.loops import Loops, cancelled
from windlass.lifecycle.run import Environment, Run
from windlass.store.listener import KICKOFFS, Listener

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.runner import Runner
    from windlass.store.kickoffs import Claimed, KickoffStore

LOOK_AGAIN = 1.0
"""Seconds after which waiting kickoffs are looked for without having been called: a call can be lost with its
connection.
"""
LAST_WORDS = 3.0
"""Seconds that a stopping worker has to give its kickoffs back; after that their leases end by themselves."""

logger = log.logger(__name__)


class Worker:
    """Claims kickoffs while slots are free, runs them, renews their leases, and takes over those of silent workers."""

    def __init__(
        self,
        store: KickoffStore,
        listener: Listener,
        runner: Runner,
        environment: Environment,
        *,
        slots: int,
        lease: float,
        renewal: float,
        max_losses: int,
    ) -> None:
        self.id: UUID = new_id()
        self._store = store
        self._runner = runner
        self._environment = environment
        self._slots, self._lease, self._renewal, self._max_losses = slots, lease, renewal, max_losses
        self._runs: dict[tuple[UUID, int], asyncio.Task[None]] = {}
        self._called = asyncio.Event()
        self._loops = Loops(self._claim, self._renew, self._reap, self._tidy)
        listener.on(KICKOFFS, lambda _: self._called.set())
        listener.on_gap(self._called.set)

    @property
    def claiming(self) -> bool:
        return self._loops.running

    async def start(self) -> None:
        await self._loops.start()

    async def stop(self) -> None:
        """Ends what runs here and gives it back; complete when it returns."""
        await self._loops.stop()
        await cancelled(self._runs.values())

    async def _claim(self) -> None:
        free = self._slots - len(self._runs)
        claimed = await self._store.claim(self.id, free, self._lease) if free > 0 else []
        for kickoff in claimed:
            self._begin(kickoff)
        if len(claimed) < free or free == 0:
            await self._call()

    async def _call(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN):
                await self._called.wait()
        self._called.clear()

    def _begin(self, claimed: Claimed) -> None:
        logger.event("kickoff.started", kickoff_id=claimed.id, deployment=claimed.slug, attempt=claimed.attempt)
        key = (claimed.id, claimed.attempt)
        task = asyncio.create_task(self._run(claimed), name=f"kickoff {claimed.id}")
        self._runs[key] = task
        task.add_done_callback(lambda _: self._end(key))

    def _end(self, key: tuple[UUID, int]) -> None:
        self._runs.pop(key, None)
        self._called.set()

    async def _run(self, claimed: Claimed) -> None:
        run = Run(claimed, self._store, self._runner, max_losses=self._max_losses)
        try:
            await run(self._environment)
        except asyncio.CancelledError:
            with suppress(TimeoutError, DatabaseUnavailable):
                async with asyncio.timeout(LAST_WORDS):
                    await run.give_back()
            raise
        except Exception as error:  # noqa: BLE001 - one kickoff's trouble is not the worker's
            logger.event("worker.run_failed", kickoff_id=claimed.id, attempt=claimed.attempt, exc=error)
            await run.lose(f"The worker could not run it ({type(error).__name__}); its log says why.")

    async def _renew(self) -> None:
        await asyncio.sleep(self._renewal)
        if not self._runs:
            return
        before = dict(self._runs)
        ours = await self._store.renew(self.id, [kickoff for kickoff, _ in before], self._lease)
        for key, task in before.items():
            if key not in ours and not task.done():
                task.cancel()  # another worker may have it by now

    async def _reap(self) -> None:
        for kickoff, state in await self._store.reap(max_losses=self._max_losses):
            logger.event(
                "kickoff.lost", kickoff_id=kickoff, why="its worker's lease ended", again=state is State.PENDING
            )
        await asyncio.sleep(self._renewal)

    async def _tidy(self) -> None:
        await self._store.forget_idempotency_keys()
        await asyncio.sleep(60)

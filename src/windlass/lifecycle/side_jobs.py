from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from windlass.lifecycle.background_tasks import BETWEEN_ATTEMPTS, BackgroundTasks
from windlass.store.side_jobs import SideJob

if TYPE_CHECKING:
    from windlass.lifecycle.retention import Retaining
    from windlass.store.side_jobs import SideJobs

BETWEEN_LOOKS = 10.0
"""Seconds between two searches for jobs whose worker has died."""


class SideJobWorker:
    """Runs side jobs. When procrastinate's worker ends, for example because the database is down, starts it again."""

    def __init__(self, jobs: SideJobs, *, look_every: float = BETWEEN_LOOKS) -> None:
        self._jobs = jobs
        self._look_every = look_every
        self._loops = BackgroundTasks(self._do_side_jobs, self._put_back_stalled)

    async def start(self) -> None:
        await self._loops.start()

    async def stop(self) -> None:
        """Gives a running job half a second to end. Requeues a job that takes longer."""
        await self._loops.stop()

    async def _do_side_jobs(self) -> None:
        await self._jobs.work()
        await asyncio.sleep(
            BETWEEN_ATTEMPTS
        )  # procrastinate's worker ends without an error when one of its parts fails

    async def _put_back_stalled(self) -> None:
        await asyncio.sleep(self._look_every)
        await self._jobs.put_back_stalled()


def side_jobs(retaining: Retaining) -> list[SideJob]:
    """Returns all side jobs. Each server has the same list, because any server may run a job that another deferred."""
    return [
        SideJob("remove_what_is_over", retaining.remove_what_is_over, cron="7 * * * *"),
        SideJob("sweep_leftovers", retaining.sweep_leftovers, cron="37 3 * * *"),
        SideJob("forget_the_expired", retaining.forget_the_expired, cron="*/5 * * * *"),
    ]

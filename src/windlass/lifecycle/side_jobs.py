from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from windlass.lifecycle.loops import BETWEEN_ATTEMPTS, Loops
from windlass.store.side_jobs import SideJob

if TYPE_CHECKING:
    from windlass.lifecycle.retention import Retaining
    from windlass.store.side_jobs import SideJobs

BETWEEN_LOOKS = 10.0
"""Seconds between looks for jobs whose worker has died."""


class SideJobWorker:
    """Does side jobs, whatever happens to the database or to procrastinate: when its worker ends, it is begun again."""

    def __init__(self, jobs: SideJobs, *, look_every: float = BETWEEN_LOOKS) -> None:
        self._jobs = jobs
        self._look_every = look_every
        self._loops = Loops(self._do_side_jobs, self._put_back_stalled)

    async def start(self) -> None:
        await self._loops.start()

    async def stop(self) -> None:
        """A job that runs may end within half a second, else it is put back."""
        await self._loops.stop()

    async def _do_side_jobs(self) -> None:
        await self._jobs.work()
        await asyncio.sleep(BETWEEN_ATTEMPTS)  # it ended by itself, as it does when one of its own parts fails

    async def _put_back_stalled(self) -> None:
        await asyncio.sleep(self._look_every)
        await self._jobs.put_back_stalled()


def side_jobs(retaining: Retaining) -> list[SideJob]:
    """All that there are, for every server: what one defers, any other may do."""
    return [
        SideJob("remove_what_is_over", retaining.remove_what_is_over, cron="7 * * * *"),
        SideJob("sweep_leftovers", retaining.sweep_leftovers, cron="37 3 * * *"),
        SideJob("forget_the_expired", retaining.forget_the_expired, cron="*/5 * * * *"),
    ]

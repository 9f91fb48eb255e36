"""Work beside the kickoffs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.lifecycle.parts import running
from windlass.lifecycle.retention import Retaining
from windlass.lifecycle.side_jobs import SideJobWorker, side_jobs
from windlass.store.kickoffs import KickoffStore
from windlass.store.retention import RetentionStore
from windlass.store.side_jobs import SideJobs

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from windlass.config import Settings
    from windlass.wiring.ground import Ground


async def start_side_jobs(settings: Settings, ground: Ground, stack: AsyncExitStack) -> SideJobs:
    retaining = Retaining(RetentionStore(ground.database), KickoffStore(ground.database), settings.retention)
    jobs = SideJobs(ground.database.url, side_jobs(retaining))
    await stack.enter_async_context(running(SideJobWorker(jobs)))
    return jobs

"""`windlass api` and `windlass worker`: the parts of a server as processes of their own, on one PostgreSQL."""

from __future__ import annotations

import gc
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from windlass import config, log
from windlass.errors import SettingsError
from windlass.lifecycle.parts import running
from windlass.wiring.crews import runner_of, start_worker
from windlass.wiring.ground import open_ground
from windlass.wiring.process import run_until_told
from windlass.wiring.serving import address_of, serve_http
from windlass.wiring.side_jobs import start_side_jobs

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.wiring.ground import Say
    from windlass.wiring.process import Told

logger = log.logger(__name__)


def work(settings: Settings, *, say: Say) -> int:
    """Runs kickoffs until it is told to stop, then drains."""

    async def serve(told: Told) -> None:
        async with AsyncExitStack() as stack:
            ground = await open_ground(settings, stack, say)
            runner = await stack.enter_async_context(running(runner_of(settings)))
            await start_side_jobs(settings, ground, stack)
            worker = await start_worker(settings, ground, runner, config.crew_environment, stack)
            logger.event("worker.ready", worker=worker.id, slots=settings.slots)
            say(f"working, {settings.slots} kickoffs at once; Ctrl-C stops")
            gc.freeze()
            await told.to_stop()
            await worker.drain(settings.drain_grace, told.hurry)

    _demand_shared_database(settings)
    return run_until_told(serve, say)


def serve_api(settings: Settings, *, say: Say) -> int:
    """Answers requests until it is told to stop."""

    async def serve(told: Told) -> None:
        async with AsyncExitStack() as stack:
            ground = await open_ground(settings, stack, say)
            server = await serve_http(settings, ground, None, None, stack)
            address = address_of(settings, server)
            logger.event("server.ready", base_url=address, deployment=None)
            say(f"serving every crew of the database at {address}/crews/NAME; Ctrl-C stops")
            gc.freeze()
            await told.to_stop()

    _demand_shared_database(settings)
    return run_until_told(serve, say)


def _demand_shared_database(settings: Settings) -> None:
    if settings.database_url is None:
        raise SettingsError(
            "WINDLASS_DATABASE_URL is not set: the parts of a server meet on a PostgreSQL of yours.",
            "Set it, and the same WINDLASS_MASTER_KEY, for each of them; or serve all in one with: windlass dev PATH",
        )

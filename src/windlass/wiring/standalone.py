"""Implements `windlass api` and `windlass worker`, which run as separate processes on one PostgreSQL."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from windlass import config, log
from windlass.aio import serving
from windlass.errors import SettingsError
from windlass.wiring.crews import runner_of, start_worker
from windlass.wiring.infrastructure import open_infrastructure
from windlass.wiring.serving import address_of, serve_http, start_side_jobs, warn_without_tls
from windlass.wiring.shutdown import run_until_shutdown

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.wiring.infrastructure import Notify
    from windlass.wiring.shutdown import ShutdownSignal

logger = log.logger(__name__)


def work(settings: Settings, *, notify: Notify) -> int:
    """Runs kickoffs until a stop signal, then drains the worker. Returns the exit code."""

    async def serve(shutdown: ShutdownSignal) -> None:
        async with AsyncExitStack() as stack:
            infrastructure = await open_infrastructure(settings, stack, notify)
            runner = await stack.enter_async_context(serving(await asyncio.to_thread(runner_of, settings, notify)))
            await start_side_jobs(settings, infrastructure, stack)
            environment = partial(config.crew_environment, passed=settings.crew_env)
            worker = await start_worker(settings, infrastructure, runner, environment, stack)
            logger.event("worker.ready", worker=worker.id, slots=settings.slots)
            notify(f"working, {settings.slots} kickoffs at once; Ctrl-C stops")
            gc.freeze()
            await shutdown.to_stop()
            await worker.drain(settings.drain_grace, shutdown.hurry)

    _demand_shared_database(settings)
    return run_until_shutdown(serve, notify)


def serve_api(settings: Settings, *, notify: Notify) -> int:
    """Answers requests until a stop signal. Returns the exit code."""

    async def serve(shutdown: ShutdownSignal) -> None:
        async with AsyncExitStack() as stack:
            infrastructure = await open_infrastructure(settings, stack, notify)
            server = await serve_http(settings, infrastructure, None, None, stack)
            warn_without_tls(settings, notify)
            address = address_of(settings, server)
            logger.event("server.ready", base_url=address, deployment=None)
            notify(f"serving every crew of the database at {address}/crews/NAME; Ctrl-C stops")
            gc.freeze()
            await shutdown.to_stop()

    _demand_shared_database(settings)
    return run_until_shutdown(serve, notify)


def _demand_shared_database(settings: Settings) -> None:
    if settings.database_url is None:
        raise SettingsError(
            "WINDLASS_DATABASE_URL is not set. Separate processes need one PostgreSQL database that they share.",
            "Set it, and the same WINDLASS_MASTER_KEY, for each process; or run a single process: windlass dev PATH",
        )

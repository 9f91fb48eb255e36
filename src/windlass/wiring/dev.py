"""`windlass dev`: one project, with everything in one process."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from windlass import log
from windlass.api.greeting import greeting
from windlass.embedded.places import write_whole
from windlass.lifecycle.parts import running
from windlass.store.cancelling import cancelled
from windlass.store.deployments import DeploymentStore
from windlass.wiring.crews import crew_environments, runner_of, start_worker, tell_of_root
from windlass.wiring.ground import open_ground
from windlass.wiring.process import run_until_told
from windlass.wiring.registering import read_project, registered
from windlass.wiring.reloading import Reloading
from windlass.wiring.serving import address_of, serve_http
from windlass.wiring.side_jobs import start_side_jobs

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.config import Settings
    from windlass.lifecycle.run import Watcher
    from windlass.store.deployments import Deployment
    from windlass.wiring.ground import Ground, Say
    from windlass.wiring.process import Told

logger = log.logger(__name__)


def dev(settings: Settings, project: Path, *, say: Say, watcher: Watcher, tokens_may_be_shown: bool) -> int:
    """Serves one project at the root, with everything in this process; returns when it was told to stop. `watcher` is
    told of its runs.
    """

    async def serve(told: Told) -> None:
        await _serve_project(settings, project, say, watcher, told, tokens_may_be_shown=tokens_may_be_shown)

    return run_until_told(serve, say)


async def _serve_project(
    settings: Settings, project: Path, say: Say, watcher: Watcher, told: Told, *, tokens_may_be_shown: bool
) -> None:
    if tokens_may_be_shown:  # a person reads what is said; the log would say it again
        log.configure(settings.log_format, "WARNING")
    registration = read_project(project, say)
    async with AsyncExitStack() as stack:
        ground = await open_ground(settings, stack, say)
        runner = await stack.enter_async_context(running(runner_of(settings)))
        environment = await crew_environments(settings, project, stack, say)
        tell_of_root(runner, registration, say)
        deployment = await registered(registration, ground, runner, environment(project), say, stack)
        await start_side_jobs(settings, ground, stack)
        worker = await start_worker(settings, ground, runner, environment, stack, watcher)
        server = await serve_http(settings, ground, worker, registration.slug, stack)
        address = address_of(settings, server)
        stack.callback(settings.address_file.unlink, missing_ok=True)
        write_whole(settings.address_file, f"{address}\n{deployment.slug}\n", 0o644)
        await _greet(address, ground, deployment, say, tokens_may_be_shown=tokens_may_be_shown)
        if tokens_may_be_shown:
            log.configure(settings.log_format, settings.log_level)
        reloading = Reloading(registration, DeploymentStore(ground.database), runner, lambda: environment(project), say)
        stack.push_async_callback(cancelled, asyncio.create_task(reloading.watch()))
        gc.freeze()  # a full collection over all that was imported costs up to 200 ms of somebody's request
        await told.to_stop()
        await worker.drain(settings.drain_grace, told.hurry)


async def _greet(base_url: str, ground: Ground, deployment: Deployment, say: Say, *, tokens_may_be_shown: bool) -> None:
    tokens = await ground.tokens.show(deployment)
    logger.event("server.ready", base_url=base_url, deployment=deployment.slug)
    for line in greeting(base_url, deployment, tokens if tokens_may_be_shown else None):
        say(line)

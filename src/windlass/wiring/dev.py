"""`windlass dev`: one project, with everything in one process."""

from __future__ import annotations

import asyncio
import gc
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass import log
from windlass.api.greeting import greeting
from windlass.embedded.places import write_whole
from windlass.lifecycle.parts import running
from windlass.projects import glance
from windlass.store.cancelling import cancelled
from windlass.store.deployments import DeploymentStore
from windlass.wiring.crews import crew_environments, runner_of, start_worker, tell_of_root
from windlass.wiring.ground import open_ground
from windlass.wiring.process import run_until_told
from windlass.wiring.registering import read_project
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


@dataclass(frozen=True, slots=True)
class Shown:
    """To whoever started it. `watcher` is told of its runs; `unlogged` are log events that it shows by itself."""

    say: Say
    watcher: Watcher
    unlogged: frozenset[str]
    tokens: bool

    def log_as(self, settings: Settings, level: str) -> None:
        log.configure(settings.log_format, level)
        for handler in logging.getLogger().handlers:
            handler.addFilter(lambda record: record.msg not in self.unlogged)


def dev(settings: Settings, project: Path, shown: Shown) -> int:
    """Serves one project at the root, with everything in this process; returns when it was told to stop."""

    async def serve(told: Told) -> None:
        await _serve_project(settings, project, shown, told)

    return run_until_told(serve, shown.say)


async def _serve_project(settings: Settings, project: Path, shown: Shown, told: Told) -> None:
    say = shown.say
    # a person reads what is said; the log would say it again
    shown.log_as(settings, "WARNING" if shown.tokens else settings.log_level)
    registration = read_project(project, say)
    seen = glance(registration.root, registration.recognised.options.ignore)
    async with AsyncExitStack() as stack:
        ground = await open_ground(settings, stack, say)
        runner = await stack.enter_async_context(running(runner_of(settings)))
        environment = await crew_environments(settings, project, stack, say)
        tell_of_root(runner, registration, say)
        store = DeploymentStore(ground.database)
        reloading = Reloading(registration, seen, store, runner, lambda: environment(registration.root), say)
        deployment = await reloading.first()
        await start_side_jobs(settings, ground, stack)
        worker = await start_worker(settings, ground, runner, environment, stack, shown.watcher)
        server = await serve_http(settings, ground, worker, registration.slug, stack)
        address = address_of(settings, server)
        stack.callback(settings.address_file.unlink, missing_ok=True)
        write_whole(settings.address_file, f"{address}\n{deployment.slug}\n", 0o644)
        await _greet(address, ground, deployment, shown)
        shown.log_as(settings, settings.log_level)
        stack.push_async_callback(cancelled, asyncio.create_task(reloading.watch()))
        gc.freeze()  # a full collection over all that was imported costs up to 200 ms of somebody's request
        await told.to_stop()
        await worker.drain(settings.drain_grace, told.hurry)


async def _greet(base_url: str, ground: Ground, deployment: Deployment, shown: Shown) -> None:
    tokens = await ground.tokens.show(deployment)
    logger.event("server.ready", base_url=base_url, deployment=deployment.slug)
    for line in greeting(base_url, deployment, tokens if shown.tokens else None):
        shown.say(line)

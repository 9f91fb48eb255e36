"""Implements `windlass dev`: one project, with server, worker and database in one process."""

from __future__ import annotations

import asyncio
import gc
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from windlass import log
from windlass.aio import cancelled, serving
from windlass.api.startup_banner import startup_banner
from windlass.embedded_postgres.paths import write_whole
from windlass.projects import glance
from windlass.store.deployments import DeploymentStore
from windlass.wiring.crews import crew_environments, notify_passed_variables, runner_of, start_worker
from windlass.wiring.infrastructure import open_infrastructure
from windlass.wiring.registering import read_project
from windlass.wiring.reloading import Reloading
from windlass.wiring.serving import address_of, serve_http, start_side_jobs, warn_without_tls
from windlass.wiring.shutdown import run_until_shutdown

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.config import Settings
    from windlass.lifecycle.run import Watcher
    from windlass.store.deployments import Deployment
    from windlass.wiring.infrastructure import Infrastructure, Notify
    from windlass.wiring.shutdown import ShutdownSignal

logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class Shown:
    """The output for the person who started the server.

    `watcher` receives the messages of runs. `unlogged` are the log events that `watcher` shows already. `tokens` is
    whether the startup banner shows the tokens. `log_stream` receives the log lines, None for standard error.
    """

    notify: Notify
    watcher: Watcher
    unlogged: frozenset[str]
    tokens: bool
    log_stream: TextIO | None = None

    def log_as(self, settings: Settings, level: str) -> None:
        log.configure(settings.log_format, level, self.log_stream)
        for handler in logging.getLogger().handlers:
            handler.addFilter(lambda record: record.msg not in self.unlogged)


def dev(settings: Settings, project: Path, shown: Shown) -> int:
    """Serves one project at the root, with all parts in this process. Returns an exit code after a stop signal."""

    async def serve(shutdown: ShutdownSignal) -> None:
        await _serve_project(settings, project, shown, shutdown)

    return run_until_shutdown(serve, shown.notify)


async def _serve_project(settings: Settings, project: Path, shown: Shown, shutdown: ShutdownSignal) -> None:
    notify = shown.notify
    # a person reads the lines of `notify`, which the log would repeat
    shown.log_as(settings, "WARNING" if shown.tokens else settings.log_level)
    registration = read_project(project, notify)
    seen = glance(registration.root, registration.recognised.options.ignore)
    async with AsyncExitStack() as stack:
        infrastructure = await open_infrastructure(settings, stack, notify)
        runner = await stack.enter_async_context(serving(await asyncio.to_thread(runner_of, settings, notify)))
        notify_passed_variables(settings, notify)
        environment = await crew_environments(settings, project, stack, notify)
        store = DeploymentStore(infrastructure.database)
        reloading = Reloading(registration, seen, store, runner, lambda: environment(registration.root), notify)
        deployment = await reloading.first()
        await start_side_jobs(settings, infrastructure, stack)
        worker = await start_worker(
            settings, infrastructure, runner, environment, stack, watcher=shown.watcher, given=registration.root
        )
        server = await serve_http(settings, infrastructure, worker, registration.slug, stack)
        warn_without_tls(settings, notify)
        address = address_of(settings, server)
        stack.callback(settings.address_file.unlink, missing_ok=True)
        write_whole(settings.address_file, f"{address}\n{deployment.slug}\n", 0o644)
        await _greet(address, infrastructure, deployment, shown)
        shown.log_as(settings, settings.log_level)
        stack.push_async_callback(cancelled, asyncio.create_task(reloading.watch()))
        gc.freeze()  # a full collection of all imported objects would delay a request by up to 200 ms
        await shutdown.to_stop()
        await worker.drain(settings.drain_grace, shutdown.hurry)


async def _greet(base_url: str, infrastructure: Infrastructure, deployment: Deployment, shown: Shown) -> None:
    tokens = await infrastructure.tokens.show(deployment)
    logger.event("server.ready", base_url=base_url, deployment=deployment.slug)
    for line in startup_banner(base_url, deployment, tokens if shown.tokens else None):
        shown.notify(line)

"""`windlass dev`: one project, with everything in one process."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

import uvloop

from windlass import config, log
from windlass.api.greeting import greeting
from windlass.embedded.places import write_whole
from windlass.lifecycle.parts import running
from windlass.lifecycle.registration import Registration
from windlass.wiring.crews import crew_environments, registered, runner_of, start_worker, tell_of_root
from windlass.wiring.ground import open_ground
from windlass.wiring.serving import serve_http

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.config import Settings
    from windlass.store.deployments import Deployment
    from windlass.wiring.ground import Ground, Say

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

logger = log.logger(__name__)


def dev(settings: Settings, project: Path, *, say: Say, tokens_may_be_shown: bool) -> int:
    """Serves one project at the root, with everything in this process; returns when it was told to stop."""
    os.umask(os.umask(0o077) & 0o077)  # whatever it was, we can read what we write
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        return loop.run(_dev(settings, project, say, tokens_may_be_shown))


async def _dev(settings: Settings, project: Path, say: Say, tokens_may_be_shown: bool) -> int:
    serving = asyncio.create_task(_serve_project(settings, project, say, tokens_may_be_shown))
    _stop_when_told(serving, say)
    with suppress(asyncio.CancelledError):
        await serving
    return 0


async def _serve_project(settings: Settings, project: Path, say: Say, tokens_may_be_shown: bool) -> None:
    """Until cancelled. That may come while it still starts: what was started by then is stopped."""
    if tokens_may_be_shown:  # a person reads what is said; the log would say it again
        log.configure(settings.log_format, "WARNING")
    for name in config.unknown_variables():
        say(f"warning: {name} is no setting of Windlass; docs/settings.md lists them")
    registration = Registration.of(project)
    async with AsyncExitStack() as stack:
        ground = await open_ground(settings, stack, say)
        runner = await stack.enter_async_context(running(runner_of(settings)))
        environment = await crew_environments(project, stack, say)
        tell_of_root(runner, registration, say)
        deployment = await registered(registration, ground, runner, environment(project), say, stack)
        worker = await start_worker(settings, ground, runner, environment, stack)
        server = await serve_http(settings, ground, worker, registration.slug, stack)
        address = settings.public_url or f"http://{_reachable(settings.host)}:{server.port}"
        stack.callback(settings.address_file.unlink, missing_ok=True)
        write_whole(settings.address_file, f"{address}\n{deployment.slug}\n", 0o644)
        await _greet(address, ground, deployment, say, tokens_may_be_shown=tokens_may_be_shown)
        if tokens_may_be_shown:
            log.configure(settings.log_format, settings.log_level)
        gc.freeze()  # a full collection over all that was imported costs up to 200 ms of somebody's request
        await asyncio.Event().wait()


async def _greet(base_url: str, ground: Ground, deployment: Deployment, say: Say, *, tokens_may_be_shown: bool) -> None:
    tokens = await ground.tokens.show(deployment)
    logger.event("server.ready", base_url=base_url, deployment=deployment.slug)
    for line in greeting(base_url, deployment, tokens if tokens_may_be_shown else None):
        say(line)


def _reachable(host: str) -> str:
    named = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104 - a name to translate
    return f"[{named}]" if ":" in named and not named.startswith("[") else named


def _stop_when_told(serving: asyncio.Task[None], say: Say) -> None:
    """By the first signal. More of them change nothing: stopping has its deadlines, and is to leave nothing behind."""
    told = asyncio.Event()

    def stop() -> None:
        if told.is_set():
            return
        told.set()
        serving.cancel()
        logger.event("server.stopping")
        say("stopping")

    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)

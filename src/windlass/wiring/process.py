"""Runs a Windlass process until a signal asks it to stop. `windlass api` and `windlass worker` are two of them.

Each process is a composition of the same services, which stop in the reverse order of their start. `serve.py` and
`dev.py` have the others.
"""

# See docs/decisions/secrets.md#the-http-server-starts-before-builds-and-runs

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

import uvloop

from windlass import config, log
from windlass.api.server import check_free
from windlass.deployments.environment import CrewEnvironments
from windlass.errors import SettingsError
from windlass.store.deployments import DeploymentStore
from windlass.wiring.http import not_ready, start_http
from windlass.wiring.shared import Shared
from windlass.wiring.work import start_builds, start_runner, start_side_jobs, start_worker

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.wiring.infrastructure import Notify

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

logger = log.logger(__name__)


class ShutdownSignal:
    """The stop signals that the process has received.

    Each of them asks the process to stop. Ctrl-C (SIGINT) or a second signal also sets `stop_now`: the process then
    does not wait for runs in progress. Further signals change nothing, because a stop has deadlines and must clean up.
    """

    def __init__(self) -> None:
        self.started = False
        self.stop_now = asyncio.Event()
        self._stop = asyncio.Event()

    async def to_stop(self) -> None:
        """Marks the process as started, and waits for a signal. A signal before this call cancels the start."""
        self.started = True
        await self._stop.wait()

    def receive(self, number: int) -> bool:
        """Records the signal. Returns whether it is the first one."""
        first = not self._stop.is_set()
        self._stop.set()
        if number == signal.SIGINT or not first:
            self.stop_now.set()
        return first


Compose = Callable[[AsyncExitStack], Awaitable[Shared]]
"""Starts the services of a process, the infrastructure first. They stop with the stack."""


def work(
    settings: Settings, deployments: Sequence[str] | None = None, excluded: Sequence[str] = (), *, notify: Notify
) -> int:
    """Runs kickoffs until a stop signal, then drains the worker. Returns the exit code.

    `deployments` are the slugs of the deployments whose kickoffs it runs, None for all but those of `excluded`.
    """

    async def compose(stack: AsyncExitStack) -> Shared:
        shared = await Shared.open(settings, stack, notify)
        await _warn_of_unknown([*(deployments or ()), *excluded], DeploymentStore(shared.database), notify)
        runner = await start_runner(shared)
        await start_side_jobs(shared)
        environments = CrewEnvironments(settings.crew_env, shared.resolver)
        await start_builds(shared, runner, environments)
        worker = await start_worker(shared, runner, environments, deployments=deployments, excluded=excluded)
        logger.event("worker.ready", worker=worker.id, slots=settings.slots)
        of = f" of {', '.join(deployments)}" if deployments else f", none of {', '.join(excluded)}," if excluded else ""
        notify(f"working, {settings.slots} kickoffs{of} at once; Ctrl-C stops")
        return shared

    _demand_shared_database(settings)
    return run_until_shutdown(compose, notify)


async def _warn_of_unknown(slugs: Sequence[str], store: DeploymentStore, notify: Notify) -> None:
    for slug in slugs:
        if await store.get(slug) is None:
            notify(f"warning: there is no crew {slug!r} yet. The worker follows its name as soon as it is deployed.")


def serve_api(settings: Settings, *, notify: Notify) -> int:
    """Answers requests until a stop signal. Returns the exit code."""

    async def compose(stack: AsyncExitStack) -> Shared:
        check_free(settings.host, settings.port)
        shared = await Shared.open(settings, stack, notify, partial(not_ready, settings))
        http = await start_http(shared)
        logger.event("server.ready", base_url=http.address, deployment=None)
        notify(f"serving every crew of the database at {http.address}/crews/NAME; Ctrl-C stops")
        return shared

    _demand_shared_database(settings)
    return run_until_shutdown(compose, notify)


def _demand_shared_database(settings: Settings) -> None:
    if settings.database_url is None:
        raise SettingsError(
            "WINDLASS_DATABASE_URL is not set. Separate processes need one PostgreSQL database that they share.",
            "Set it, and the same WINDLASS_MASTER_KEY, for each process; or run a single process: windlass dev PATH",
        )


def run_until_shutdown(compose: Compose, notify: Notify, *, for_person: bool = False) -> int:
    """Starts the services, and stops them after a stop signal. Returns the exit code.

    `for_person` is whether a person reads the lines of `notify`. The log would repeat those of the stop, so it then has
    warnings only.
    """
    os.umask(os.umask(0o077) & 0o077)  # the umask must not keep the process from its own files
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        return loop.run(_run_until_shutdown(compose, notify, for_person=for_person))


async def _serve(compose: Compose, shutdown: ShutdownSignal) -> None:
    notify_socket = config.notify_socket()
    async with AsyncExitStack() as stack:
        shared = await compose(stack)
        gc.freeze()  # a full collection of all imported objects would delay a request by up to 200 ms
        _notify_systemd(notify_socket, "READY=1")
        await shutdown.to_stop()
        _notify_systemd(notify_socket, "STOPPING=1")
        await shared.drain(shutdown.stop_now)


def _notify_systemd(address: str | None, state: str) -> None:
    """Sends the state of the service, for units with Type=notify."""
    if address:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


async def _run_until_shutdown(compose: Compose, notify: Notify, *, for_person: bool) -> int:
    shutdown = ShutdownSignal()
    serving = asyncio.ensure_future(_serve(compose, shutdown))

    def receive(number: int) -> None:
        if shutdown.receive(number):
            if for_person:
                log.warnings_only()
            logger.event("server.stopping")
            notify("stopping")
            if not shutdown.started:
                serving.cancel()

    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, receive, number)
    with suppress(asyncio.CancelledError):
        await serving
    return 0

"""The parts that run crews: the runner, the worker, and what a project is registered with."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from windlass import config
from windlass.accounts import ROOT
from windlass.api.server import HttpServer
from windlass.embedded.offline_model import has_provider_key, model_environment, names_another_model, offline_model_app
from windlass.embedded.offline_script import Script
from windlass.lifecycle.parts import running
from windlass.lifecycle.run import Watcher, unwatched
from windlass.lifecycle.worker import Worker
from windlass.runner import Runner, Ways
from windlass.runner.account import crew_account
from windlass.runner.environment import machine_environment
from windlass.store.kickoffs import Claimed, KickoffStore

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from windlass.config import Settings
    from windlass.lifecycle.registration import Registration
    from windlass.wiring.ground import Ground, Say

EnvironmentOf = Callable[[Path], Mapping[str, str]]
"""A project's folder -> the environment of its crew."""

FEWEST_TASKS, THREADS = 4096, 8
"""What a fork bomb may reach before its process_limit ends it, and what is left of that for the threads of a process.
For all crews together: the kernel counts by user.
"""


def runner_of(settings: Settings) -> Runner:
    ways = Ways(
        grace=settings.stop_grace,
        zygote_idle=settings.zygote_idle,
        zygote_memory=settings.zygote_memory,
        tasks=max(FEWEST_TASKS, THREADS * settings.slots * settings.process_limit),
        crew_account=crew_account(settings.crew_user),
    )
    return Runner(settings.home / "runs", machine_environment(config.crew_environment()), ways)


def tell_of_root(runner: Runner, registration: Registration, say: Say) -> None:
    root = registration.root
    if os.geteuid() == ROOT and runner.account_for(registration.interpreter, root) is None:
        say("warning: this crew runs as root, like the server; docs/security.md says how it runs as another user")


async def start_worker(
    settings: Settings,
    ground: Ground,
    runner: Runner,
    environment: EnvironmentOf,
    stack: AsyncExitStack,
    watcher: Watcher = unwatched,
) -> Worker:
    store = KickoffStore(ground.database)
    if ground.alone:
        await store.end_all_leases()

    async def environment_of(kickoff: Claimed) -> Mapping[str, str]:
        return environment(Path(kickoff.source["root"]))

    worker = Worker(
        store,
        ground.listener,
        runner,
        environment_of,
        ground.key_ring,
        slots=settings.slots,
        lease=settings.lease,
        renewal=settings.renewal,
        max_losses=settings.max_losses,
        limits=settings.limits,
    )
    worker.watcher = watcher
    return await stack.enter_async_context(running(worker))


async def crew_environments(settings: Settings, project: Path, stack: AsyncExitStack, say: Say) -> EnvironmentOf:
    """What `Environments` says, with the offline model behind it."""
    file = settings.offline_script
    model = HttpServer(offline_model_app(Script.read(file, say=say) if file else None), "127.0.0.1", 0)
    await stack.enter_async_context(running(model))
    environment_of = Environments(project, f"http://127.0.0.1:{model.port}", file, say)
    environment_of(project)
    return environment_of


class Environments:
    """The user's own over that of each project, with the offline model in it while they name no other model: so it is
    asked anew for each kickoff, and of `served` it is said when the model is another one.

    Kickoffs of a project that was served from this home before may still wait: they get that one's, not this one's.
    """

    def __init__(self, served: Path, address: str, script: Path | None, say: Say) -> None:
        self._served = served.resolve()
        self._address = address
        self._script = script
        self._say = say
        self._said = ""

    def __call__(self, root: Path) -> Mapping[str, str]:
        own = config.crew_environment(root)
        if root.resolve() == self._served:
            self._tell(has_provider_key(own) or names_another_model(own))
        return own | model_environment(own, self._address)

    def _tell(self, named: str | None) -> None:
        if named:
            words = f"crews use the model of your environment ({named} is set there or in the project's .env)"
        else:
            by_script = f", which answers by {self._script}" if self._script else ""
            words = f"no model key is set (such as OPENAI_API_KEY): crews get answers from the offline model{by_script}"
        if words == self._said:
            return
        self._say(f"the model has changed: {words}" if self._said else words)
        self._said = words
        if named and self._script:
            self._say(f"warning: so nothing is answered by {self._script} (WINDLASS_OFFLINE_SCRIPT)")

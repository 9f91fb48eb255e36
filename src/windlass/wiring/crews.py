"""Builds the parts that run crews: the runner, the worker, and the environments of projects."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from windlass import config, log
from windlass.accounts import ROOT
from windlass.aio import serving
from windlass.api.server import HttpServer
from windlass.embedded_postgres.account import account_for, make_home
from windlass.embedded_postgres.errors import EmbeddedPostgresError
from windlass.embedded_postgres.paths import Paths
from windlass.errors import SettingsError
from windlass.lifecycle.run import Watcher, unwatched
from windlass.lifecycle.worker import Worker
from windlass.offline_model.app import has_provider_key, model_environment, names_another_model, offline_model_app
from windlass.offline_model.script import Script
from windlass.projects import TrustedProjects
from windlass.runner import Runner, RunnerConfig
from windlass.runner.cgroups import Cgroups, NotDelegated, delegated, divided
from windlass.runner.crew_account import check_apart, crew_account
from windlass.runner.prepared_interpreters import Prepared, prepare
from windlass.runner.run_spec import machine_environment
from windlass.runner.spawning import PROGRAM
from windlass.store.kickoffs import Claimed, KickoffStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AsyncExitStack

    from windlass.accounts import Account
    from windlass.config import Settings
    from windlass.wiring.infrastructure import Infrastructure, Notify

logger = log.logger(__name__)

EnvironmentOf = Callable[[Path], dict[str, str]]
"""Maps a project's folder to the environment variables of its crew."""

FEWEST_TASKS, THREADS = 4096, 8
"""FEWEST_TASKS is the smallest limit of processes and threads (RLIMIT_NPROC) that all crews have together. A fork bomb
may reach it before its `process_limit` ends the run. THREADS is the number of threads per allowed process.
The kernel counts per user, so the limit holds for all crews together.
"""


def runner_of(settings: Settings, notify: Notify, scratch: Path | None = None) -> Runner:
    """Returns the runner of a server. With `scratch`, returns a runner for checks, without cgroups.

    Such a runner uses `scratch` instead of a folder in the home, if crews run as the server's own user.
    Raises SettingsError when the crew user owns files of the server. Raises WindlassError when the crew user can't be
    given an interpreter.
    """
    is_server = scratch is None
    account = crew_account(settings.crew_user)
    if account is None:
        place, prepared = settings.home, Prepared()
        if os.geteuid() == ROOT:
            logger.event("crews.as_root")
            notify("warning: crews run as root, like the server, because WINDLASS_CREW_USER is root (docs/security.md)")
    else:
        check_apart(account, owners(settings))
        place, scratch = place_for_crews(settings.home, account), None
        prepared = prepare(account, config.ROOT_HOME / "interpreters", notify)
    runner_config = RunnerConfig(
        grace=settings.stop_grace,
        zygote_idle=settings.zygote_idle,
        zygote_memory=settings.zygote_memory,
        tasks=max(FEWEST_TASKS, THREADS * settings.slots * settings.process_limit),
        crew_account=account,
        prepared=prepared,
        limits=settings.limits,
        cgroups=cgroups_of_runs() if is_server else None,
    )
    return Runner(scratch or place / "runs", machine_environment(config.environment()), runner_config)


def cgroups_of_runs() -> Cgroups | None:
    """Returns None when no cgroup is delegated to the server. The limits of runs are then polled."""
    try:
        cgroups = divided(delegated())
    except NotDelegated as error:
        logger.event("limits.polled", why=error)
        return None
    logger.event("limits.cgroups", folder=cgroups.folder)
    return cgroups


@contextmanager
def runner_for_checks(settings: Settings, notify: Notify) -> Iterator[Runner]:
    """Yields a runner that loads a project as a server would.

    Its scratch folder is a temporary one, so that the home of a user who never started a server stays unchanged.
    """
    with TemporaryDirectory(prefix="windlass-check-") as folder:
        yield runner_of(settings, notify, Path(folder))


def owners(settings: Settings) -> dict[str, int]:
    """Maps each file or folder of the server, as words for a message, to the id of the user that owns it."""
    ours = {
        "the folder WINDLASS_HOME": settings.home,
        "Windlass's own program": PROGRAM,
        "the interpreter that Windlass runs on": Path(os.path.realpath(sys.executable)),
        "the environment that Windlass is installed in": Path(sys.prefix),
    }
    found = {name: path.stat().st_uid for name, path in ours.items() if path.exists()}
    if settings.database_url is None:
        with suppress(EmbeddedPostgresError):  # it has no user: a start of the database reports that
            found["the embedded database"] = account_for(Paths(settings.home).data).uid
    return found


def place_for_crews(home: Path, account: Account) -> Path:
    """Returns the home, or the default home of root when the account can't reach the first one.

    Raises SettingsError when the account can reach neither.
    """
    for place in (home, config.ROOT_HOME):
        existing = next(folder for folder in (place, *place.parents) if folder.exists())
        if account.first_closed(existing) is None:
            make_home(place)
            return place
    raise SettingsError(
        f"Crews run as the user {account.name}, which can reach neither {home} nor {config.ROOT_HOME}.",
        "Set WINDLASS_HOME to a folder that all users can reach.",
    )


async def start_worker(
    settings: Settings,
    infrastructure: Infrastructure,
    runner: Runner,
    environment: EnvironmentOf,
    stack: AsyncExitStack,
    *,
    watcher: Watcher = unwatched,
    given: Path | None = None,
) -> Worker:
    """Starts a worker that stops with `stack`. `given` is the project that the server was started with, or None."""
    store = KickoffStore(infrastructure.database)
    if infrastructure.alone:
        await store.end_all_leases()

    async def environment_of(kickoff: Claimed) -> Mapping[str, str]:
        return await asyncio.to_thread(environment, Path(kickoff.source["root"]))

    worker = Worker(
        store,
        infrastructure.listener,
        runner,
        environment_of,
        infrastructure.key_ring,
        slots=settings.slots,
        lease=settings.lease,
        renewal=settings.renewal,
        max_losses=settings.max_losses,
        limits=settings.limits,
    )
    worker.watcher = watcher
    worker.projects = TrustedProjects.of(settings.project_owners, given)
    return await stack.enter_async_context(serving(worker))


async def crew_environments(settings: Settings, project: Path, stack: AsyncExitStack, notify: Notify) -> EnvironmentOf:
    """Starts the offline model and returns the `Environments` that refer to it.

    Reads the environment of `project` once, so that a faulty .env fails at the start.
    """
    file = settings.offline_script
    model = HttpServer(offline_model_app(Script.read(file, notify=notify) if file else None), "127.0.0.1", 0)
    await stack.enter_async_context(serving(model))
    own = partial(config.crew_environment, passed=settings.crew_env)
    environment_of = Environments(project, own, f"http://127.0.0.1:{model.port}", file, notify)
    await asyncio.to_thread(lambda: environment_of(project.resolve()))
    return environment_of


def notify_passed_variables(settings: Settings, notify: Notify) -> None:
    names = config.passed_variables(settings.crew_env)
    notify(f"crews get these variables of this environment: {', '.join(names) or 'none'} (docs/projects.md)")


class Environments:
    """Maps a project's folder to its environment: the user's variables override those of the project.

    The environment names the offline model unless these variables name another model.
    It is read again for each kickoff. When the model of the project `served` changes, the user is notified.

    Kickoffs of a project that this home served before may still wait. They get the environment of their own project.
    """

    def __init__(self, served: Path, own: EnvironmentOf, address: str, script: Path | None, notify: Notify) -> None:
        self._served = served.resolve()
        self._own = own
        self._address = address
        self._script = script
        self._notify = notify
        self._last_message = ""

    def __call__(self, root: Path) -> dict[str, str]:
        own = self._own(root)
        if root.resolve() == self._served:
            self._notify_model(has_provider_key(own) or names_another_model(own))
        return own | model_environment(own, self._address)

    def _notify_model(self, named: str | None) -> None:
        if named:
            message = f"crews use the model of your environment ({named} is set there or in the project's .env)"
        else:
            by_script = f", which answers by {self._script}" if self._script else ""
            message = (
                f"no model key is set (such as OPENAI_API_KEY): crews get answers from the offline model{by_script}"
            )
        if message == self._last_message:
            return
        self._notify(f"the model has changed: {message}" if self._last_message else message)
        self._last_message = message
        if named and self._script:
            self._notify(f"warning: the script {self._script} (WINDLASS_OFFLINE_SCRIPT) is not used with that model")

"""Builds the parts that a worker needs for its crews: the runner, and their environments under `windlass dev`."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from windlass import config, log
from windlass.accounts import ROOT
from windlass.aio import serving
from windlass.api.server import HttpServer
from windlass.deployments.environment import CrewEnvironments, OfflineModel, passed_variables
from windlass.embedded_postgres.errors import EmbeddedPostgresError
from windlass.embedded_postgres.home import Paths, account_for, make_home
from windlass.errors import SettingsError
from windlass.kickoffs.boundary_parts import boundary_parts
from windlass.kickoffs.egress import UNRESTRICTED, Egress
from windlass.kickoffs.opened_files import opened
from windlass.offline_model.app import offline_model_app
from windlass.offline_model.script import Script
from windlass.projects import Interpreters
from windlass.runner import Runner, RunnerConfig
from windlass.runner.cgroups import Cgroups, NotDelegated, delegated, divided
from windlass.runner.crew_account import check_apart, crew_account
from windlass.runner.egress.outside import Outside
from windlass.runner.egress.proxy import Proxy
from windlass.runner.namespaces import refused, sockets_permitted
from windlass.runner.prepared_interpreters import Prepared, prepare
from windlass.runner.run_spec import TaskBounds, machine_environment
from windlass.runner.spawning import PROGRAM
from windlass_child.process.hardening import landlock_version
from windlass_child.process.sockets import CLOSED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AsyncExitStack

    from pydantic import SecretStr

    from windlass.accounts import Account
    from windlass.config import Settings
    from windlass.deployments.resolution import Resolver
    from windlass.kickoffs.boundary_parts import BoundaryPart
    from windlass.wiring.infrastructure import Notify

logger = log.logger(__name__)

FEWEST_TASKS, THREADS, TASKS_OF_A_SLOT = 4096, 8, 64
"""FEWEST_TASKS is the smallest limit of processes and threads (RLIMIT_NPROC) that all crews have together. THREADS is
the number of threads per allowed process. The kernel counts per user, so the limit holds for all crews together.
TASKS_OF_A_SLOT is the room for each other run in the limit of one run, where crews have a user of their own. Elsewhere
the kernel would count the other programs of the server's user. A fork bomb may reach it before its `process_limit` ends
the run.
"""
POSTGRESQL = 5432


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
            notify(
                "warning: crews run as root, like the server, because WINDLASS_CREW_USER is root "
                "(docs/concepts/security.md)"
            )
    else:
        check_apart(account, owners(settings))
        place, scratch = place_for_crews(settings.home, account), None
        prepared = prepare(account, config.ROOT_HOME / "interpreters", notify)
    boundary, namespaces, sockets = boundary_of(account, settings.crew_users)
    for one in boundary:
        logger.event(
            "boundary.open" if one.holds == "no" else "boundary.holds", part=one.part, holds=one.holds, text=one.text
        )
    runner_config = RunnerConfig(
        grace=settings.stop_grace,
        zygote_idle=settings.zygote_idle,
        zygote_memory=settings.zygote_memory,
        tasks=TaskBounds(
            max(FEWEST_TASKS, THREADS * settings.slots * settings.process_limit),
            others=TASKS_OF_A_SLOT * settings.slots if account else None,
        ),
        crew_account=account,
        namespaces=namespaces,
        sockets=sockets,
        boundary=boundary,
        prepared=prepared,
        limits=settings.limits,
        cgroups=cgroups_of_runs() if is_server else None,
        closed=(settings.home, config.default_home()),
        files=opened(settings.crew_files),
        egress=Egress.parse(settings.egress) if is_server else UNRESTRICTED,
        outside=Outside(
            hosts_in(settings.database_url) + hosts_in(settings.database_direct_url), Proxy.of(config.environment())
        ),
    )
    return Runner(scratch or place / "runs", machine_environment(config.environment()), runner_config)


def boundary_of(account: Account | None, numbers: str) -> tuple[tuple[BoundaryPart, ...], bool, str]:
    """Returns what separates runs on this machine, whether it permits namespaces to crews, and what it permits without
    (windlass_child.process.sockets).

    `account` is the user of crews, and `numbers` is WINDLASS_CREW_USERS.
    """
    why = refused(account, account.uid if account else None)
    sockets = sockets_permitted() if why else CLOSED
    landlock = landlock_version()
    parts = boundary_parts(account, numbers, server=os.geteuid(), landlock=landlock, refused=why, sockets=sockets)
    return parts, not why, sockets


def hosts_in(url: SecretStr | None) -> tuple[tuple[str, int], ...]:
    """Returns the hosts and ports of PostgreSQL that a URL names, which may be several."""
    place = urlsplit(url.get_secret_value()).netloc.rpartition("@")[2] if url else ""
    found = [re.fullmatch(r"\[?([^\]]+?)\]?(?::(\d+))?", one) for one in place.split(",")]
    return tuple((one[1], int(one[2] or POSTGRESQL)) for one in found if one)


def cgroups_of_runs() -> Cgroups | None:
    """Returns None when no cgroup is delegated to the server. The limits of runs are then polled."""
    try:
        cgroups = divided(delegated())
    except NotDelegated as error:
        logger.event("limits.polled", why=error)
        return None
    logger.event("limits.cgroups", folder=cgroups.folder)
    return cgroups


def interpreters_of_command(python: str | None) -> Interpreters:
    """Returns the interpreters of projects for a command with this --python, and its environment's $VIRTUAL_ENV."""
    return Interpreters.of_command(python, config.environment().get("VIRTUAL_ENV"))


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


async def dev_environments(
    settings: Settings, resolver: Resolver, served: Mapping[Path, Notify], stack: AsyncExitStack, notify: Notify
) -> CrewEnvironments:
    """Starts the offline model and returns the environments of crews that refer to it.

    `served` maps the folder of each project to the function that notifies of its model. The environment of a single
    project is read once, so that a faulty .env fails at the start.
    """
    file = settings.offline_script
    server = HttpServer(offline_model_app(Script.read(file, notify=notify) if file else None), "127.0.0.1", 0)
    await stack.enter_async_context(serving(server))
    model = OfflineModel(f"http://127.0.0.1:{server.port}", served, file)
    environments = CrewEnvironments(settings.crew_env, resolver, model)
    if len(served) == 1:
        await environments.of_project(*served)
    return environments


def notify_passed_variables(settings: Settings, notify: Notify) -> None:
    names = passed_variables(settings.crew_env)
    notify(f"crews get these variables of this environment: {', '.join(names) or 'none'} (docs/concepts/projects.md)")

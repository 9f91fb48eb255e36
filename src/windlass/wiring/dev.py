"""Implements `windlass dev`: projects, with server, worker and database in one process."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from windlass import log
from windlass.aio import cancelled
from windlass.api.crew_api.welcome import welcome
from windlass.api.server import check_free
from windlass.deployments.environment import without_ours
from windlass.deployments.registration import read_project
from windlass.deployments.resolution import DevVariables
from windlass.errors import ProjectError
from windlass.files import write_whole
from windlass.lifecycle.worker_config import CrewEnvironment
from windlass.loopback import is_loopback
from windlass.projects import ServedCode, glance
from windlass.store.deployments import DeploymentStore
from windlass.store.variables import VariableStore
from windlass.wiring.crews import dev_environments, interpreters_of_command, notify_passed_variables
from windlass.wiring.http import not_ready, start_http
from windlass.wiring.process import run_until_shutdown
from windlass.wiring.reloading import Reloading
from windlass.wiring.shared import Shared
from windlass.wiring.work import start_builds, start_runner, start_side_jobs, start_worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack

    from windlass.access.tokens import ShownTokens
    from windlass.config import Settings
    from windlass.deployments.environment import CrewEnvironments
    from windlass.deployments.registration import Registration
    from windlass.lifecycle.worker_config import Observer
    from windlass.projects import Interpreters
    from windlass.store.deployments import Deployment
    from windlass.wiring.infrastructure import Infrastructure, Notify
    from windlass.wiring.shared import Http

LAST_LINE = "\nCtrl-C stops it; accepted kickoffs wait for the next start."

logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class Shown:
    """The output for the person who started the server.

    `observers` show the messages of runs. `unlogged` are the log events that they show already. `tokens` is whether the
    startup banner shows the tokens. `log_stream` receives the log lines, None for standard error.
    """

    notify: Notify
    observers: Sequence[Observer]
    unlogged: frozenset[str]
    tokens: bool
    log_stream: TextIO | None = None

    def log_as(self, settings: Settings, level: str) -> None:
        log.configure(settings.log_format, level, self.log_stream)
        for handler in logging.getLogger().handlers:
            handler.addFilter(lambda record: record.msg not in self.unlogged)


def dev(settings: Settings, projects: Sequence[Path], shown: Shown, python: str | None = None) -> int:
    """Serves projects with all parts in this process. A single one is at the root. Returns an exit code after a stop
    signal.
    """
    if "egress" not in settings.model_fields_set:
        settings = settings.model_copy(update={"egress": ["unrestricted"]})  # crews use services of this machine

    async def compose(stack: AsyncExitStack) -> Shared:
        return await _serve_projects(settings, stack, projects, shown, interpreters_of_command(python))

    return run_until_shutdown(compose, shown.notify, for_person=shown.tokens)


async def _serve_projects(
    settings: Settings, stack: AsyncExitStack, projects: Sequence[Path], shown: Shown, interpreters: Interpreters
) -> Shared:
    notify = shown.notify
    # a person reads the lines of `notify`, which the log would repeat
    shown.log_as(settings, "WARNING" if shown.tokens else settings.log_level)
    alone = len(projects) == 1
    given = _read_projects(projects, notify, interpreters)
    check_free(settings.host, settings.port)
    shared = await Shared.open(settings, stack, notify, partial(not_ready, settings))
    store, code = DeploymentStore(shared.database), ServedCode()
    given = await _named(store, given, notify)
    notifies = {one.slug: notify if alone else partial(_notify_of, notify, one.slug) for one in given}
    for one in given:
        notifies[one.slug](f"crews run in {one.chosen}")
    seen = [glance(one.root, one.recognised.options.ignore) for one in given]
    runner = await start_runner(shared)
    notify_passed_variables(settings, notify)
    environments = await dev_environments(
        settings, shared.resolver, {one.root: notifies[one.slug] for one in given}, stack, notify
    )
    variables = DevVariables(store, VariableStore(shared.database), shared.resolver)
    await refuse_deployed(store, given)
    crews = [
        Reloading(
            one,
            files,
            store,
            runner,
            partial(_environment, environments, variables, one, notifies[one.slug]),
            notify=notifies[one.slug],
            interpreters=interpreters,
            code=code,
        )
        for one, files in zip(given, seen, strict=True)
    ]
    # before any load and any run: providers fetch the issuer's keys from it
    http = await start_http(shared, given[0].slug if alone else None, worker_follows=True)
    deployments = await _load_all(crews, alone=alone)
    await start_side_jobs(shared)
    await start_builds(shared, runner, environments)
    roots = [one.root for one in given]
    await start_worker(
        shared, runner, environments, observers=shown.observers, given=roots, interpreters=interpreters, code=code
    )
    stack.callback(settings.address_file.unlink, missing_ok=True)
    slugs = "".join(f"{one.slug}\n" for one in given)
    write_whole(settings.address_file, f"{http.address}\n{slugs}", 0o644)
    await _show_dashboard(http, shown, is_local=is_loopback(settings.host))
    for deployment in deployments:
        base_url = http.address if alone else f"{http.address}/crews/{deployment.slug}"
        await _greet(base_url, shared.infrastructure, deployment, shown)
    notify(LAST_LINE)
    shown.log_as(settings, settings.log_level)
    for crew in crews:
        stack.push_async_callback(cancelled, asyncio.create_task(crew.watch()))
    return shared


async def _environment(
    environments: CrewEnvironments, variables: DevVariables, one: Registration, notify: Notify
) -> CrewEnvironment:
    """Returns the environment in which the project is loaded: that of its kickoffs."""
    own = await environments.of_project(one.root)
    found = {**own, **without_ours(await variables.read(one.slug, notify))}
    return CrewEnvironment(found, await variables.secrets(one.slug))


async def refuse_deployed(store: DeploymentStore, given: Sequence[Registration]) -> None:
    """Raises ProjectError when one of the projects has the name of a deployed crew, whose version it would replace."""
    for one in given:
        found = await store.get(one.slug)
        if found is not None and found.version is not None and found.version.source.get("snapshot"):
            raise ProjectError(
                f"{one.slug} is deployed on this server, and `windlass dev` would replace its version by {one.root}.",
                "Deploy the project again (windlass serve, windlass deploy), or use another home for windlass dev: "
                "WINDLASS_HOME=...",
            )


def _notify_of(notify: Notify, slug: str, line: str) -> None:
    notify(f"{slug}: {line}")


def _read_projects(projects: Sequence[Path], notify: Notify, interpreters: Interpreters) -> list[Registration]:
    """Returns the projects that can be read. Raises ProjectError when none can be read."""
    found: list[Registration] = []
    for path in projects:
        try:
            one = read_project(path, notify, interpreters)
        except ProjectError as error:
            if path == projects[-1] and not found:
                raise
            notify(f"warning: {path} is not served: {error} Then start again.")
            continue
        if any((one.root, one.recognised.project) == (other.root, other.recognised.project) for other in found):
            raise ProjectError(f"{path} is given twice.", "Name each project once.")
        found.append(one)
    shared = Counter(one.root for one in found)
    return [one.named_by_object() if shared[one.root] > 1 else one for one in found]


async def _named(store: DeploymentStore, given: Sequence[Registration], notify: Notify) -> list[Registration]:
    """Returns the projects with a slug of its own each.

    A project keeps the slug that it had. No project takes the slug of another folder that is still there: the kickoffs,
    variables and tokens of that slug belong to the other one, and its code would be served while this one can't be
    loaded.
    """
    named: dict[int, Registration] = {}
    taken: set[str] = set()
    for keeps in (True, False):
        for place, one in enumerate(given):
            if place not in named and (found := await _slug_for(store, one, taken, keeps=keeps)):
                named[place] = found
                taken.add(found.slug)
                if found.slug != one.slug and (other := await _folder_of(store, one.slug)) not in {None, one.root}:
                    notify(f"{one.root} is served as {found.slug}, because {one.slug} is the project in {other}")
    return [named[place] for place in range(len(given))]


async def _slug_for(store: DeploymentStore, one: Registration, taken: set[str], *, keeps: bool) -> Registration | None:
    """Returns the project with the first slug that is free or its own. With `keeps`, only with one that it had."""
    passed = set(taken)
    while True:
        found = one.named_apart(passed)
        folder = await _folder_of(store, found.slug)
        if folder == one.root or (folder is None and not keeps):
            return found
        if folder is None:
            return None
        passed.add(found.slug)


async def _folder_of(store: DeploymentStore, slug: str) -> Path | None:
    """Returns the folder that `windlass dev` has served by this slug, if it is still there."""
    found = await store.get(slug)
    if found is None or found.version is None or found.version.source.get("snapshot"):
        return None
    folder = Path(found.version.source["root"])
    return folder if await asyncio.to_thread(folder.is_dir) else None


async def _load_all(crews: list[Reloading], *, alone: bool) -> list[Deployment]:
    """Returns the deployments of the projects that can be loaded. Raises ProjectError when none can be."""
    found: list[Deployment] = []
    for crew in crews:
        try:
            found.append(await crew.first())
        except ProjectError as error:
            if alone or (crew is crews[-1] and not found):
                raise
            crew.fail_first(error)
    return found


def startup_banner(base_url: str, deployment: Deployment, tokens: ShownTokens | None) -> list[str]:
    """Returns lines with commands to paste for the crew. Without `tokens`, they name the command that prints tokens."""
    schema = deployment.version.manifest.inputs_schema if deployment.version else {}
    shown = (tokens.organization, tokens.user, tokens.user_name) if tokens else None
    return ["", f"The crew {deployment.slug} is served.", "", *welcome(base_url, schema, shown)]


async def _show_dashboard(http: Http, shown: Shown, *, is_local: bool) -> None:
    """Prints the link that signs a person in. Only a terminal gets it: a log would keep it."""
    if shown.tokens and (is_local or await http.dashboard.sessions.needs_link()):
        shown.notify(f"\nDashboard: {await http.sign_in_link()}\n  The link signs you in once, within 30 minutes.")
    else:
        shown.notify(f"\nDashboard: {http.dashboard.server_url}/ui/")


async def _greet(base_url: str, infrastructure: Infrastructure, deployment: Deployment, shown: Shown) -> None:
    tokens = await infrastructure.tokens.show(deployment)
    logger.event("server.ready", base_url=base_url, deployment=deployment.slug)
    for line in startup_banner(base_url, deployment, tokens if shown.tokens else None):
        shown.notify(line)

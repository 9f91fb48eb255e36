"""Implements `windlass serve`: a server for many deployed crews, with worker and database in one process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from windlass import log
from windlass.api.server import check_free
from windlass.deployments.environment import CrewEnvironments, crew_environment, names_model
from windlass.files import write_whole
from windlass.store.deployments import DeploymentStore
from windlass.wiring.crews import dev_environments, notify_passed_variables
from windlass.wiring.http import not_ready, start_http
from windlass.wiring.process import run_until_shutdown
from windlass.wiring.shared import Shared
from windlass.wiring.work import start_builds, start_runner, start_side_jobs, start_worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack

    from windlass.config import Settings
    from windlass.wiring.infrastructure import Notify

MOST_NAMED = 10
"""The most crews that the startup banner names."""

OFFLINE = ["  Model        the offline model answers crews without a model key; it is no real model"]
NO_KEY = [
    "  Model        no model key is set here. Set one for a crew: windlass env set NAME OPENAI_API_KEY",
    "               To try crews without a key: windlass serve --offline-model",
]

logger = log.logger(__name__)


def serve(settings: Settings, notify: Notify, *, offline_model: bool, for_person: bool) -> int:
    """Serves the deployed crews with all parts in this process. Returns an exit code after a stop signal.

    With `offline_model`, crews whose variables name no model use the offline model. `for_person` is whether a person
    reads the lines of `notify`. The log would repeat those of the start, so it then starts with warnings only.
    """

    async def compose(stack: AsyncExitStack) -> Shared:
        if for_person:
            log.configure(settings.log_format, "WARNING")
        check_free(settings.host, settings.port)
        shared = await Shared.open(settings, stack, notify, partial(not_ready, settings))
        runner = await start_runner(shared)
        notify_passed_variables(settings, notify)
        await start_side_jobs(shared)
        environments = (
            await dev_environments(settings, shared.resolver, {}, stack, notify)
            if offline_model
            else CrewEnvironments(settings.crew_env, shared.resolver)
        )
        # before any run: providers fetch the issuer's keys from it
        http = await start_http(shared, worker_follows=True)
        await start_builds(shared, runner, environments)
        await start_worker(shared, runner, environments)
        stack.callback(settings.address_file.unlink, missing_ok=True)
        write_whole(settings.address_file, f"{http.address_here}\n", 0o644)
        logger.event("server.ready", base_url=http.address, deployment=None)
        slugs = [row["slug"] for row in await DeploymentStore(shared.database).all()]
        has_model = names_model(crew_environment(None, settings.crew_env))
        model = OFFLINE if offline_model else [] if has_model else NO_KEY
        link = await http.sign_in_link() if for_person and await http.dashboard.sessions.needs_link() else None
        for line in startup_banner(http.address, slugs, settings.slots, model, link):
            notify(line)
        log.configure(settings.log_format, settings.log_level)
        return shared

    return run_until_shutdown(compose, notify, for_person=for_person)


def startup_banner(
    address: str, slugs: list[str], slots: int, model: Sequence[str] = (), link: str | None = None
) -> list[str]:
    """Returns the lines that a new server prints: where it is, what it serves, and how to deploy. `model` are lines
    about the model of the crews, `link` signs the owner in to the dashboard.
    """
    crews = f"{len(slugs)} crew{'' if len(slugs) == 1 else 's'}" if slugs else "no crew yet"
    return [
        "",
        f"Windlass serves {crews}, {slots} kickoffs at once.",
        "",
        f"  Address      {address}",
        f"  Dashboard    {link or f'{address}/ui/'}",
        *(["               The link signs you in once, within 30 minutes. Then set a password there."] if link else []),
        f"  Control API  {address}/api/v1/docs",
        *(f"  Crew         {address}/crews/{slug}" for slug in slugs[:MOST_NAMED]),
        *([f"  ...          {len(slugs) - MOST_NAMED} more: windlass deployments list"] if slugs[MOST_NAMED:] else []),
        *model,
        "",
        "Deploy a project, in another terminal:",
        "  windlass init my_crew      # makes a project, if you have none",
        "  windlass deploy my_crew",
        "",
        "Ctrl-C stops the server; accepted kickoffs wait for the next start.",
    ]

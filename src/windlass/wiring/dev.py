"""Implements `windlass dev`: one project, with server, worker and database in one process."""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TextIO

from windlass import log
from windlass.aio import cancelled
from windlass.api.crew_api.examples import example_inputs
from windlass.deployments.registration import read_project
from windlass.files import write_whole
from windlass.projects import glance
from windlass.store.deployments import DeploymentStore
from windlass.wiring.crews import dev_environments, interpreters_of_command, notify_passed_variables
from windlass.wiring.process import run_until_shutdown
from windlass.wiring.reloading import Reloading

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from windlass.access.tokens import ShownTokens
    from windlass.config import Settings
    from windlass.lifecycle.run import Observer
    from windlass.projects import Interpreters
    from windlass.store.deployments import Deployment
    from windlass.wiring.infrastructure import Infrastructure, Notify
    from windlass.wiring.services import Services
JSON = "-H 'Content-Type: application/json'"

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


def dev(settings: Settings, project: Path, shown: Shown, python: str | None = None) -> int:
    """Serves one project at the root, with all parts in this process. Returns an exit code after a stop signal."""

    async def compose(services: Services) -> None:
        await _serve_project(services, project, shown, interpreters_of_command(python))

    return run_until_shutdown(settings, compose, shown.notify)


async def _serve_project(services: Services, project: Path, shown: Shown, interpreters: Interpreters) -> None:
    settings, stack, notify = services.settings, services.stack, shown.notify
    # a person reads the lines of `notify`, which the log would repeat
    shown.log_as(settings, "WARNING" if shown.tokens else settings.log_level)
    registration = read_project(project, notify, interpreters)
    notify(f"crews run in {registration.chosen}")
    seen = glance(registration.root, registration.recognised.options.ignore)
    infrastructure = await services.start_infrastructure()
    runner = await services.start_runner()
    notify_passed_variables(settings, notify)
    environments = await dev_environments(settings, registration.root, stack, notify)
    store = DeploymentStore(infrastructure.database)
    environment = partial(environments.of_project, registration.root)
    reloading = Reloading(registration, seen, store, runner, environment, notify=notify, interpreters=interpreters)
    deployment = await reloading.first()
    await services.start_side_jobs()
    await services.start_worker(
        runner, environments, observers=shown.observers, given=registration.root, interpreters=interpreters
    )
    address = await services.start_http(registration.slug)
    stack.callback(settings.address_file.unlink, missing_ok=True)
    write_whole(settings.address_file, f"{address}\n{deployment.slug}\n", 0o644)
    await _greet(address, infrastructure, deployment, shown)
    shown.log_as(settings, settings.log_level)
    stack.push_async_callback(cancelled, asyncio.create_task(reloading.watch()))


def startup_banner(base_url: str, deployment: Deployment, tokens: ShownTokens | None) -> list[str]:
    """Returns lines with commands to paste for the crew. Without `tokens`, they name the command that prints tokens."""
    return [
        "",
        f"The crew {deployment.slug} is served.",
        "",
        *_facts(base_url, tokens),
        "",
        *_commands(base_url, deployment, tokens),
    ]


def _facts(base_url: str, tokens: ShownTokens | None) -> list[str]:
    docs = [f"  Base URL           {base_url}", f"  API docs           {base_url}/docs"]
    if tokens is None:
        return [*docs, "  Tokens             windlass tokens show"]
    return [
        *docs,
        f"  Bearer Token       {tokens.organization.reveal()}   (everything on this crew)",
        f"  User Bearer Token  {tokens.user.reveal()}   (kickoffs of the user {tokens.user_name})",
    ]


def _commands(base_url: str, deployment: Deployment, tokens: ShownTokens | None) -> list[str]:
    token = tokens.organization.reveal() if tokens else "$WINDLASS_TOKEN"
    bearer = f'-H "Authorization: Bearer {token}"'
    schema = deployment.version.manifest.inputs_schema if deployment.version else {}
    body = shlex.quote(json.dumps({"inputs": example_inputs(schema)}, ensure_ascii=False))
    begin = "Try it:" if tokens else "Try it, with WINDLASS_TOKEN set to one of them:"
    return [
        begin,
        f"  curl -sS {bearer} {base_url}/inputs",
        f"  KICKOFF=$(curl -sS {bearer} {JSON} -d {body} {base_url}/kickoff | cut -d'\"' -f4); echo $KICKOFF",
        f'  curl -sS {bearer} "{base_url}/status/$KICKOFF?wait=30"',
        "",
        "Ctrl-C stops it; accepted kickoffs wait for the next start.",
    ]


async def _greet(base_url: str, infrastructure: Infrastructure, deployment: Deployment, shown: Shown) -> None:
    tokens = await infrastructure.tokens.show(deployment)
    logger.event("server.ready", base_url=base_url, deployment=deployment.slug)
    for line in startup_banner(base_url, deployment, tokens if shown.tokens else None):
        shown.notify(line)

"""The composition root: the only module that knows all the parts, and how they hold together."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from windlass import config, log
from windlass.accounts import ROOT
from windlass.api.addresses import Addresses
from windlass.api.application import Application
from windlass.api.crew import CrewApi
from windlass.api.greeting import greeting
from windlass.api.health import health_routes
from windlass.api.server import HttpServer
from windlass.embedded.account import make_home
from windlass.embedded.offline_model import has_provider_key, model_environment, names_another_model, offline_model_app
from windlass.embedded.places import write_whole
from windlass.embedded.postgres import EmbeddedPostgres, running_url
from windlass.errors import DatabaseUnavailable, ProjectError
from windlass.lifecycle.accept import Acceptor
from windlass.lifecycle.access import Access
from windlass.lifecycle.crews import Crews
from windlass.lifecycle.loops import Loops
from windlass.lifecycle.parts import running, seen_through
from windlass.lifecycle.registration import Registration
from windlass.lifecycle.statuses import Statuses
from windlass.lifecycle.stopping import Stops
from windlass.lifecycle.tokens import Tokens, TokenUse
from windlass.lifecycle.worker import Worker
from windlass.runner import Runner, Ways
from windlass.runner.account import crew_account
from windlass.runner.environment import machine_environment
from windlass.store.cancelling import cancelled
from windlass.store.database import Database
from windlass.store.deployments import Deployment, DeploymentStore
from windlass.store.healing import Healing
from windlass.store.kickoffs import Claimed, KickoffStore
from windlass.store.listener import Listener
from windlass.store.migrate import is_migrated, migrate
from windlass.store.tokens import TokenStore
from windlass.vault.key_ring import KeyRing, load_key_ring
from windlass.vault.secret import Secret

if TYPE_CHECKING:
    from windlass.config import Settings

Say = Callable[[str], None]
EnvironmentOf = Callable[[Path], Mapping[str, str]]
"""A project's folder -> the environment of its crew."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
TOKEN_USE_EVERY = 30.0
"""Seconds between writes of when tokens were last used."""

logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class Administration:
    """What commands work with that look at or change a server's own things."""

    tokens: Tokens
    deployments: DeploymentStore
    database_url: str


@dataclass(frozen=True, slots=True)
class Ground:
    """What every process of ours stands on. `alone`: no other worker can be on this database, for we have just started
    it.
    """

    database: Database
    listener: Listener
    key_ring: KeyRing
    tokens: Tokens
    alone: bool


def dev(settings: Settings, project: Path, *, say: Say, tokens_may_be_shown: bool) -> int:
    """Serves one project at the root, with everything in this process; returns when it was told to stop."""
    os.umask(os.umask(0o077) & 0o077)  # whatever it was, we can read what we write
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        return loop.run(_dev(settings, project, say, tokens_may_be_shown))


@asynccontextmanager
async def administration(settings: Settings) -> AsyncIterator[Administration]:
    """On the database of the settings, else on that of a server that runs on this home, else on the embedded one,
    started for it.
    """
    async with AsyncExitStack() as stack:
        url = _outside(settings) or running_url(settings.home) or await _embedded(settings, stack, _quietly)
        database = await stack.enter_async_context(Database(url, connections=2))
        await migrate(database)
        tokens = await Tokens.open(TokenStore(database), _key_ring(settings))
        yield Administration(tokens, DeploymentStore(database), url)


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
        runner = await stack.enter_async_context(running(_runner(settings)))
        environment = await _crew_environments(project, stack, say)
        _tell_of_root(runner, registration, say)
        deployment = await _registered(registration, ground, runner, environment(project), say, stack)
        worker = await _worker(settings, ground, runner, environment, stack)
        server = await serve_http(settings, ground, worker, registration.slug, stack)
        address = settings.public_url or f"http://{_reachable(settings.host)}:{server.port}"
        stack.callback(settings.address_file.unlink, missing_ok=True)
        write_whole(settings.address_file, f"{address}\n{deployment.slug}\n", 0o644)
        await _greet(address, ground, deployment, say, tokens_may_be_shown=tokens_may_be_shown)
        if tokens_may_be_shown:
            log.configure(settings.log_format, settings.log_level)
        gc.freeze()  # a full collection over all that was imported costs up to 200 ms of somebody's request
        await asyncio.Event().wait()


def _runner(settings: Settings) -> Runner:
    ways = Ways(
        grace=settings.stop_grace,
        zygote_idle=settings.zygote_idle,
        zygote_memory=settings.zygote_memory,
        tasks=settings.slots * settings.process_limit,
        crew_account=crew_account(settings.crew_user),
    )
    return Runner(settings.home / "runs", machine_environment(config.crew_environment()), ways)


def _tell_of_root(runner: Runner, registration: Registration, say: Say) -> None:
    root = Path(registration.recognised.project.root)
    if os.geteuid() == ROOT and runner.account_for(registration.interpreter, root) is None:
        logger.event("crews.as_root", deployment=registration.slug)
        say("warning: this crew runs as root, like the server; docs/security.md says how it runs as another user")


async def open_ground(settings: Settings, stack: AsyncExitStack, say: Say) -> Ground:
    outside = _outside(settings)
    url = outside or await _embedded(settings, stack, say)
    database = await stack.enter_async_context(Database(url))
    if applied := await migrate(database):
        say("making the tables" if 1 in applied else "bringing the tables up to date")
        logger.event("database.migrated", migrations=len(applied))
    key_ring = _key_ring(settings)
    tokens = await Tokens.open(TokenStore(database), key_ring)
    listener = Listener(url)
    healing = Healing(database)
    listener.on_gap(healing.begin)
    stack.push_async_callback(healing.stop)
    await stack.enter_async_context(running(listener))
    return Ground(database, listener, key_ring, tokens, alone=outside is None)


async def _worker(
    settings: Settings, ground: Ground, runner: Runner, environment: EnvironmentOf, stack: AsyncExitStack
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
        slots=settings.slots,
        lease=settings.lease,
        renewal=settings.lease_renewal,
        max_losses=settings.max_losses,
        limits=settings.limits,
    )
    return await stack.enter_async_context(running(worker))


async def serve_http(
    settings: Settings, ground: Ground, worker: Worker | None, root: str | None, stack: AsyncExitStack
) -> HttpServer:
    database, listener = ground.database, ground.listener
    access = Access(ground.tokens, TokenStore(database), listener)
    crew_api = CrewApi(
        Crews(DeploymentStore(database), listener),
        access,
        Acceptor(KickoffStore(database, max_waiting=settings.max_waiting)),
        Statuses(KickoffStore(database), listener),
        ground.key_ring.seal,
        settings.max_body,
        settings.request_timeout,
        Stops(KickoffStore(database)).stop,
        settings.stop_grace,
    )

    async def claiming() -> bool:
        return worker is None or worker.claiming

    async def migrated() -> bool:
        return await database.answers() and await is_migrated(database)

    health = health_routes({"database": migrated, "worker": claiming})
    app = Application(crew_api, health, Addresses(root, settings.crew_domain), public_url=settings.public_url)
    server = HttpServer(
        app,
        settings.host,
        settings.port,
        trusted_proxies=settings.trusted_proxies,
        headers_within=settings.request_timeout,
    )

    async def write_token_use() -> None:
        await asyncio.sleep(TOKEN_USE_EVERY)
        await access.use.write()

    stack.push_async_callback(_write_last, access.use)
    await stack.enter_async_context(running(Loops(write_token_use)))
    return await stack.enter_async_context(running(server))


async def _write_last(use: TokenUse) -> None:
    with suppress(DatabaseUnavailable):
        await use.write()


async def _registered(
    registration: Registration,
    ground: Ground,
    runner: Runner,
    environment: Mapping[str, str],
    say: Say,
    stack: AsyncExitStack,
) -> Deployment:
    """At once when the project is as it was at the last start; that it still loads is looked at meanwhile."""
    store = DeploymentStore(ground.database)
    known = await registration.known(store)
    if known is None:
        say(f"loading the project {registration.slug} (the first time takes some seconds)")
        return await registration.inspect(store, runner, environment, _warning(say))
    looking = asyncio.create_task(_look_again(registration, store, runner, environment, say))
    stack.push_async_callback(cancelled, looking)
    return known


def _warning(say: Say) -> Say:
    return lambda words: say(f"warning: {words}")


async def _look_again(
    registration: Registration, store: DeploymentStore, runner: Runner, environment: Mapping[str, str], say: Say
) -> None:
    try:
        await registration.inspect(store, runner, environment, _warning(say))
    except ProjectError as error:
        say(f"warning: the project can't be loaded any more: {error}")
    except Exception as error:  # noqa: BLE001 - the server serves on, with what it knew of the project
        say(f"warning: the project could not be looked at again: {error}")


async def _crew_environments(project: Path, stack: AsyncExitStack, say: Say) -> EnvironmentOf:
    """The user's own over that of each project, with the offline model in it when they name no other model.

    Kickoffs of a project that was served from this home before may still wait: they get that one's, not this one's.
    """
    environment = config.crew_environment(project)
    if named := has_provider_key(environment) or names_another_model(environment):
        say(f"crews use the model of your environment ({named} is set there or in the project's .env)")
        return config.crew_environment
    model = HttpServer(offline_model_app(), "127.0.0.1", 0)
    await stack.enter_async_context(running(model))
    say("no model key is set (such as OPENAI_API_KEY): crews get answers from the offline model")
    address = f"http://127.0.0.1:{model.port}"

    def environment_of(root: Path) -> Mapping[str, str]:
        own = config.crew_environment(root)
        return own | model_environment(own, address)

    return environment_of


async def _greet(base_url: str, ground: Ground, deployment: Deployment, say: Say, *, tokens_may_be_shown: bool) -> None:
    tokens = await ground.tokens.show(deployment)
    logger.event("server.ready", base_url=base_url, deployment=deployment.slug)
    for line in greeting(base_url, deployment, tokens if tokens_may_be_shown else None):
        say(line)


def _reachable(host: str) -> str:
    named = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104 - a name to translate
    return f"[{named}]" if ":" in named and not named.startswith("[") else named


async def _embedded(settings: Settings, stack: AsyncExitStack, say: Say) -> str:
    postgres = EmbeddedPostgres(settings.home, report=say)
    stack.push_async_callback(_stop_embedded, postgres)
    url = await seen_through(asyncio.to_thread(postgres.start))
    logger.event("database.started", home=settings.home)
    return url


async def _stop_embedded(postgres: EmbeddedPostgres) -> None:
    await asyncio.to_thread(postgres.stop)
    logger.event("database.stopped")


def _outside(settings: Settings) -> str | None:
    return settings.database_url.get_secret_value() if settings.database_url else None


def _key_ring(settings: Settings) -> KeyRing:
    make_home(settings.home)
    given = Secret(settings.master_key.get_secret_value()) if settings.master_key else None
    return load_key_ring(settings.home / "master.key", given)


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


def _quietly(_: str) -> None:
    pass

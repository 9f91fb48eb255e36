"""Starts the HTTP server and the side jobs."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from windlass import log
from windlass.access.authentication import TokenAuthenticator
from windlass.access.rate_limits import RateLimits
from windlass.aio import serving
from windlass.api.application import Addresses, Application, Hosts, health_routes
from windlass.api.connections import ConnectionLimits
from windlass.api.crew_api.kickoff_requests import KickoffRules
from windlass.api.crew_api.routes import CrewApi
from windlass.api.server import HttpServer
from windlass.api.streaming_json import LargeAnswers
from windlass.deployments.crews import Crews
from windlass.errors import DatabaseUnavailable
from windlass.lifecycle.accept import Acceptor
from windlass.lifecycle.background_tasks import BackgroundTasks
from windlass.lifecycle.deletion import Deletions
from windlass.lifecycle.retention import Retaining
from windlass.lifecycle.side_jobs import SideJobWorker, side_jobs
from windlass.lifecycle.statuses import Statuses
from windlass.lifecycle.stopping import Stops
from windlass.loopback import is_loopback
from windlass.store.deployments import DeploymentStore
from windlass.store.kickoffs import KickoffStore
from windlass.store.migrate import is_migrated
from windlass.store.retention import RetentionStore
from windlass.store.side_jobs import SideJobs
from windlass.store.tokens import TokenStore

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from windlass.access.tokens import TokenUse
    from windlass.config import Settings
    from windlass.lifecycle.worker import Worker
    from windlass.wiring.infrastructure import Infrastructure, Notify


TOKEN_USE_EVERY = 30.0
"""Seconds between two writes of the times at which tokens were last used."""
REPORT_FAILURES_EVERY = 60.0
"""Seconds between two reports of failed authentications."""

logger = log.logger(__name__)


async def serve_http(
    settings: Settings, infrastructure: Infrastructure, worker: Worker | None, root: str | None, stack: AsyncExitStack
) -> HttpServer:
    database, listener = infrastructure.database, infrastructure.listener
    rates = RateLimits(settings.failed_auth_limit, settings.request_limit, settings.user_request_limit)
    access = TokenAuthenticator(infrastructure.tokens, TokenStore(database), listener, rates)
    crew_api = CrewApi(
        Crews(DeploymentStore(database), listener),
        access,
        Acceptor(
            KickoffStore(database, max_waiting=settings.max_waiting, user_share=settings.user_queue_share),
        ),
        Statuses(KickoffStore(database), listener),
        KickoffRules(
            infrastructure.key_ring.seal, settings.user_max_priority, timedelta(days=settings.user_max_days_ahead)
        ),
        settings.max_body,
        settings.request_timeout,
        Stops(KickoffStore(database)),
        settings.stop_grace,
        Deletions(RetentionStore(database)),
        LargeAnswers(settings.home, settings.large_answers),
    )

    async def claiming() -> bool:
        return worker is None or worker.claiming

    async def migrated() -> bool:
        return await database.answers() and await is_migrated(database)

    health = health_routes({"database": migrated, "worker": claiming})
    addresses = Addresses(root, settings.crew_domain)
    app = Application(crew_api, health, addresses, public_url=settings.public_url, hosts=hosts_of(settings))
    server = HttpServer(
        app,
        settings.host,
        settings.port,
        trusted_proxies=settings.trusted_proxies,
        headers_within=settings.request_timeout,
        limits=ConnectionLimits(settings.max_connections, settings.max_connections_per_address, settings.send_timeout),
    )

    async def write_token_use() -> None:
        await asyncio.sleep(TOKEN_USE_EVERY)
        await access.use.write()

    async def report_failures() -> None:
        await asyncio.sleep(REPORT_FAILURES_EVERY)
        access.failures.report()

    stack.push_async_callback(_write_last, access.use)
    stack.callback(access.failures.report)
    await stack.enter_async_context(serving(BackgroundTasks(write_token_use, report_failures)))
    return await stack.enter_async_context(serving(server))


def hosts_of(settings: Settings) -> Hosts:
    """Returns the host names that the server accepts.

    A server that only this machine reaches accepts known names only. A server that other machines reach also accepts
    names without a dot, which are the names of services in a cluster.
    """
    domain, public = settings.crew_domain, urlsplit(settings.public_url or "").hostname
    known = [settings.host, public, domain, f"*.{domain}" if domain else None, socket.gethostname()]
    return Hosts([*settings.allowed_hosts, *known], plain=not is_loopback(settings.host))


def warn_without_tls(settings: Settings, notify: Notify) -> None:
    """Warns when other machines reach the server and no proxy with TLS is configured.

    A server speaks plain HTTP, so tokens and inputs cross the network unencrypted without such a proxy.
    """
    if is_loopback(settings.host) or (settings.public_url or "").startswith("https://"):
        return
    logger.event("server.without_tls", host=settings.host)
    notify(
        f"warning: other machines reach {settings.host} without TLS, so tokens and inputs cross the network "
        "unencrypted. Put a proxy with TLS in front of the server, and set WINDLASS_PUBLIC_URL=https://... "
        "(docs/security.md)"
    )


def address_of(settings: Settings, server: HttpServer) -> str:
    """Returns the URL at which clients reach the server."""
    return settings.public_url or f"http://{_reachable(settings.host)}:{server.port}"


def _reachable(host: str) -> str:
    named = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104 - a name to translate
    return f"[{named}]" if ":" in named and not named.startswith("[") else named


async def _write_last(use: TokenUse) -> None:
    with suppress(DatabaseUnavailable):
        await use.write()


async def start_side_jobs(settings: Settings, infrastructure: Infrastructure, stack: AsyncExitStack) -> SideJobs:
    retaining = Retaining(
        RetentionStore(infrastructure.database), KickoffStore(infrastructure.database), settings.retention
    )
    jobs = SideJobs(infrastructure.database.url, side_jobs(retaining))
    await stack.enter_async_context(serving(SideJobWorker(jobs)))
    return jobs

"""Starts the HTTP server: the API of crews, the control API, the dashboard, and whether the process is ready."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from windlass.access.authentication import RateLimits, TokenAuthenticator
from windlass.access.callbacks import Callbacks
from windlass.access.sessions import Sessions
from windlass.access.tickets import Tickets
from windlass.aio import serving
from windlass.api.application import Addresses, Application, WaitingApplication, health_routes
from windlass.api.connections import ConnectionLimits
from windlass.api.control_api.application import control_routes
from windlass.api.control_api.dependencies import ControlApi
from windlass.api.control_api.upload_limit import Uploads
from windlass.api.crew_api.kickoff_requests import KickoffRules
from windlass.api.crew_api.routes import CrewApi
from windlass.api.crewai_cli import CrewaiCli
from windlass.api.metrics import Metrics
from windlass.api.oidc import Oidc
from windlass.api.server import HttpServer
from windlass.api.streaming_json import LargeAnswers
from windlass.dashboard.dashboard import Dashboard
from windlass.dashboard.openid_client import OpenIdClient
from windlass.dashboard.pages import Pages
from windlass.deployments.builds import Builds
from windlass.deployments.credentials import Credentials
from windlass.deployments.crews import Crews
from windlass.deployments.deploys import Deploys
from windlass.deployments.management import Management
from windlass.deployments.members import Members
from windlass.deployments.variables import Variables
from windlass.deployments.webhooks import DeploymentWebhooks
from windlass.errors import DatabaseUnavailable
from windlass.lifecycle.accept import Acceptor, Stops
from windlass.lifecycle.approvals import Approvals
from windlass.lifecycle.background_tasks import BackgroundTasks
from windlass.lifecycle.deletion import Deletions
from windlass.lifecycle.event_streams import EventStreams, Shares
from windlass.lifecycle.statuses import Statuses
from windlass.loopback import http_url, is_loopback
from windlass.projects import Options
from windlass.store.accepting import Accepting
from windlass.store.audit import AuditStore
from windlass.store.builds import BuildStore
from windlass.store.credentials import CredentialStore
from windlass.store.deployments import DeploymentStore
from windlass.store.ending import Endings
from windlass.store.managing import ManagingStore
from windlass.store.members import MemberStore
from windlass.store.migrate import schema_of
from windlass.store.overview import OverviewStore
from windlass.store.questions import Questions
from windlass.store.reading import KickoffReads
from windlass.store.retention import RetentionStore
from windlass.store.statistics import StatisticsStore
from windlass.store.tokens import TokenStore
from windlass.store.variables import VariableStore
from windlass.store.webhooks import WebhookStore
from windlass.store.write_checks import SLOW, write_fault
from windlass.wiring.http_settings import hosts_of, openid_of, warn_without_tls
from windlass.wiring.shared import Http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.routing import Route

    from windlass.config import Settings
    from windlass.lifecycle.readiness import Check
    from windlass.wiring.shared import Shared

MOST_STREAMS_OF_A_USER = 50
"""Streams of events that one user may have open at once."""
TOKEN_USE_EVERY = 30.0
"""Seconds between two writes of the times at which tokens were last used."""
REMOVE_SESSIONS_EVERY = 3600.0
"""Seconds between two removals of sessions and links that have expired."""
REPORT_FAILURES_EVERY = 60.0
"""Seconds between two reports of failed authentications."""


@asynccontextmanager
async def not_ready(settings: Settings, reason: str) -> AsyncIterator[None]:
    """Serves /health and /ready for the time of the block, and 503 for all other requests."""
    async with serving(HttpServer(WaitingApplication(reason), settings.host, settings.port)):
        yield


async def start_http(shared: Shared, root: str | None = None, *, worker_follows: bool = False) -> Http:
    """Starts the HTTP server. `root` is the crew at the root, if any.

    With `worker_follows`, the server is not ready before a worker is started.
    """
    settings, infrastructure, stack = shared.settings, shared.infrastructure, shared.stack
    access = _authenticator(shared)
    most_open = max(1, settings.max_connections // 2)
    streams = EventStreams(
        KickoffReads(shared.database), infrastructure.listener, most=most_open, most_of_user=MOST_STREAMS_OF_A_USER
    )
    crew_api = _crew_api(shared, access, streams, Shares(most_open, "requests that wait"))
    builds = Builds(BuildStore(shared.database), infrastructure.listener)
    control = _control_api(shared, access, builds)
    dashboard = _dashboard(shared, control, crew_api)
    app = Application(
        crew_api,
        [
            *_health(shared, worker_follows=worker_follows),
            *control_routes(control),
            *CrewaiCli(control).routes(),
            *Oidc(infrastructure.identity).routes(),
            *Pages(dashboard).routes(),
            *_metrics(shared, control),
        ],
        Addresses(root, settings.crew_domain),
        public_url=settings.public_url,
        hosts=hosts_of(settings),
    )
    server = HttpServer(
        app,
        settings.host,
        settings.port,
        trusted_proxies=settings.trusted_proxies,
        headers_within=settings.request_timeout,
        limits=ConnectionLimits(settings.max_connections, settings.max_connections_per_address, settings.send_timeout),
    )
    await _report_access(shared, access, dashboard.sessions)
    await stack.enter_async_context(serving(server))
    await stack.enter_async_context(serving(streams))  # stopped first, so that the server need not wait
    warn_without_tls(settings, shared.notify)
    here = dashboard.here = http_url(settings.host, server.port)
    if settings.issuer is None and is_loopback(settings.host):
        infrastructure.identity.issue_at(here)
    waits = (crew_api.statuses, builds)
    shared.http = Http(settings.public_url or here, here, dashboard, server, streams, waits)
    return shared.http


def _authenticator(shared: Shared) -> TokenAuthenticator:
    settings, tokens = shared.settings, shared.infrastructure.tokens
    rates = RateLimits(settings.failed_auth_limit, settings.request_limit, settings.user_request_limit)
    return TokenAuthenticator(tokens, TokenStore(shared.database, tokens.rules), shared.infrastructure.listener, rates)


def _crew_api(shared: Shared, access: TokenAuthenticator, streams: EventStreams, waits: Shares) -> CrewApi:
    settings, database = shared.settings, shared.database
    tokens, listener = shared.infrastructure.tokens, shared.infrastructure.listener
    return CrewApi(
        crews=Crews(DeploymentStore(database), listener),
        access=access,
        acceptor=Acceptor(Accepting(database, max_waiting=settings.max_waiting, user_share=settings.user_queue_share)),
        statuses=Statuses(KickoffReads(database), listener),
        rules=KickoffRules(shared.endpoints, settings.user_max_priority, timedelta(days=settings.user_max_days_ahead)),
        largest_body=settings.max_body,
        request_timeout=settings.request_timeout,
        stops=Stops(Endings(database)),
        stop_grace=settings.stop_grace,
        approvals=Approvals(Questions(database)),
        deletions=Deletions(RetentionStore(database)),
        large_answers=LargeAnswers(settings.home, settings.large_answers),
        stored_files=shared.kickoffs.files,
        streams=streams,
        waits=waits,
        tickets=Tickets(tokens),
        callbacks=Callbacks(tokens),
    )


def _control_api(shared: Shared, access: TokenAuthenticator, builds: Builds) -> ControlApi:
    settings, database, infrastructure = shared.settings, shared.database, shared.infrastructure
    deployments, overview, audit = DeploymentStore(database), OverviewStore(database), AuditStore(database)
    key_ring = infrastructure.key_ring
    usual = Options(
        max_waiting=settings.max_waiting,
        limits=settings.limits,
        retention=settings.retention,
        egress=settings.egress,
        files=settings.crew_files or None,
    )
    variables, members = Variables(VariableStore(database), key_ring), Members(MemberStore(database))
    return ControlApi(
        access=access,
        tokens=infrastructure.tokens,
        members=members,
        management=Management(deployments, overview, infrastructure.tokens, variables, members, usual),
        overview=overview,
        audit=audit,
        deploys=Deploys(
            deployments,
            ManagingStore(database),
            builds,
            shared.sources,
            allow_local_git=settings.git_allow_private,
            visible_to=settings.visible_to,
        ),
        uploads=Uploads(),
        identity=infrastructure.identity,
        credentials=Credentials(
            CredentialStore(database), key_ring, infrastructure.providers, infrastructure.identity.subject
        ),
        deletions=Deletions(RetentionStore(database)),
        approvals=Approvals(Questions(database)),
        statistics=StatisticsStore(database),
        webhooks=DeploymentWebhooks(
            WebhookStore(database), deployments, audit, shared.endpoints, key_ring, shared.sender
        ),
        largest_body=settings.max_body,
        request_timeout=settings.request_timeout,
        public_url=settings.public_url,
    )


def _dashboard(shared: Shared, control: ControlApi, crew_api: CrewApi) -> Dashboard:
    tokens = shared.infrastructure.tokens
    sessions = Sessions(shared.database, tokens, control.access.failures)
    config = openid_of(shared.settings)
    client = OpenIdClient(config, tokens.key_for(b"windlass openid")) if config else None
    return Dashboard(control, crew_api, sessions, tokens.key_for(b"windlass notice"), client)


def _metrics(shared: Shared, control: ControlApi) -> list[Route]:
    settings = shared.settings
    is_open = is_loopback(settings.host) and settings.public_url is None
    return Metrics(control.access, control.overview, is_open).routes() if settings.metrics else []


def _health(shared: Shared, *, worker_follows: bool) -> list[Route]:
    database = shared.database
    write_check = shared.cached_check(partial(write_fault, database), SLOW)

    async def database_fault() -> str | None:
        try:
            if not await database.answers():
                return "The database does not answer."
            if fault := (await schema_of(database)).fault:
                return fault
        except DatabaseUnavailable as error:
            return error.message
        return await write_check()

    async def worker_fault() -> str | None:
        if shared.worker.claiming if shared.worker else not worker_follows:
            return None
        return "The worker of this process claims no kickoffs: it has not started yet, or it stops."

    async def stop_fault() -> str | None:
        return "The server is stopping." if shared.stopping else None

    checks: dict[str, Check] = {"database": database_fault, "folders": shared.folder_check, "worker": worker_fault}
    return health_routes(
        {**checks, "server": stop_fault},
        lambda: shared.runner.degraded() if shared.runner else [],
        lambda: shared.runner.failed_warm_ups() if shared.runner else 0,
    )


async def _report_access(shared: Shared, access: TokenAuthenticator, sessions: Sessions) -> None:
    """Writes the times at which tokens were used, and reports failed authentications, also at the stop.

    Removes expired sessions of the dashboard.
    """

    async def write_token_use() -> None:
        await asyncio.sleep(TOKEN_USE_EVERY)
        await access.use.write()

    async def report_failures() -> None:
        await asyncio.sleep(REPORT_FAILURES_EVERY)
        access.failures.report()

    async def remove_expired_sessions() -> None:
        await sessions.remove_expired()
        await asyncio.sleep(REMOVE_SESSIONS_EVERY)

    async def write_last() -> None:
        with suppress(DatabaseUnavailable):
            await access.use.write()

    shared.stack.push_async_callback(write_last)
    shared.stack.callback(access.failures.report)
    await shared.stack.enter_async_context(
        serving(BackgroundTasks(write_token_use, report_failures, remove_expired_sessions))
    )

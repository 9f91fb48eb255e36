"""Starts the services that Windlass processes are composed of: infrastructure, runner, worker, side jobs, HTTP."""

# See docs/decisions/deployments.md#builds-have-a-side-job-worker-of-their-own

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING

from windlass.access.authentication import RateLimits, TokenAuthenticator
from windlass.access.callbacks import Callbacks
from windlass.access.sessions import Sessions
from windlass.access.tickets import Tickets
from windlass.access.tokens import OWNER
from windlass.aio import serving
from windlass.api.application import Addresses, Application, health_routes
from windlass.api.connections import ConnectionLimits
from windlass.api.control_api.application import control_routes
from windlass.api.control_api.dependencies import ControlApi
from windlass.api.control_api.upload_limit import Uploads
from windlass.api.crew_api.kickoff_requests import KickoffRules
from windlass.api.crew_api.routes import CrewApi
from windlass.api.crewai_cli import CrewaiCli
from windlass.api.metrics import Metrics
from windlass.api.oidc import Oidc
from windlass.api.server import HttpServer, check_free
from windlass.api.streaming_json import LargeAnswers
from windlass.dashboard.dashboard import Dashboard
from windlass.dashboard.openid_client import OpenIdClient
from windlass.dashboard.pages import Pages
from windlass.deployments.building import Building
from windlass.deployments.builds import Builds
from windlass.deployments.checkouts import Checkouts
from windlass.deployments.credentials import Credentials
from windlass.deployments.crews import Crews
from windlass.deployments.deployed_code import DeployedCode, Removal
from windlass.deployments.deploys import Deploys
from windlass.deployments.management import Management
from windlass.deployments.resolution import Resolver
from windlass.deployments.secret_reads import connector
from windlass.deployments.sources import Sources
from windlass.deployments.variables import Variables
from windlass.deployments.webhooks import DeploymentWebhooks
from windlass.errors import DatabaseUnavailable
from windlass.lifecycle.accept import Acceptor, Stops
from windlass.lifecycle.approvals import Approvals
from windlass.lifecycle.background_tasks import BackgroundTasks, SideJobWorker, side_jobs
from windlass.lifecycle.deletion import Deletions, Retaining
from windlass.lifecycle.event_streams import EventStreams, Shares
from windlass.lifecycle.readiness import CachedCheck, Folders
from windlass.lifecycle.removals import Removals
from windlass.lifecycle.statuses import Statuses
from windlass.lifecycle.worker import Worker
from windlass.lifecycle.worker_config import WorkerConfig
from windlass.loopback import http_url, is_loopback
from windlass.projects import Options, ServedCode, TrustedProjects
from windlass.projects.bounded_reader import BoundedReader
from windlass.runner.crew_account import crew_account
from windlass.store.accepting import Accepting
from windlass.store.audit import AuditStore
from windlass.store.builds import JOB, BuildStore
from windlass.store.credentials import CredentialStore
from windlass.store.deployments import DeploymentStore
from windlass.store.ending import Endings
from windlass.store.kickoffs import KickoffStore
from windlass.store.managing import ManagingStore
from windlass.store.migrate import is_migrated
from windlass.store.overview import OverviewStore
from windlass.store.questions import Questions
from windlass.store.reading import KickoffReads
from windlass.store.retention import RetentionStore
from windlass.store.side_jobs import SideJob, SideJobs
from windlass.store.sources import SourceStore
from windlass.store.statistics import StatisticsStore
from windlass.store.tokens import TokenStore
from windlass.store.variables import VariableStore
from windlass.store.webhooks import JOB as WEBHOOKS
from windlass.store.webhooks import WebhookStore
from windlass.store.write_checks import SLOW, write_fault
from windlass.webhooks.delivering import ENDPOINTS_AT_ONCE, Delivering, status_url
from windlass.webhooks.endpoints import Endpoints
from windlass.webhooks.sending import Sender
from windlass.wiring.crews import interpreters_of_command, runner_of
from windlass.wiring.http_settings import hosts_of, openid_of, warn_without_tls
from windlass.wiring.infrastructure import open_infrastructure
from windlass.wiring.setup import environments_of, place_for_code, server_builder
from windlass.wiring.user_removal import user_deletion

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from contextlib import AsyncExitStack
    from pathlib import Path

    from starlette.routing import Route

    from windlass.config import Settings
    from windlass.deployments.environment import CrewEnvironments
    from windlass.lifecycle.readiness import Check
    from windlass.lifecycle.worker_config import Observer
    from windlass.projects import Interpreters
    from windlass.projects.environments import Environments
    from windlass.runner import Runner
    from windlass.wiring.infrastructure import Infrastructure, Notify

MOST_STREAMS_OF_A_USER = 50
"""Streams of events that one user may have open at once."""
TOKEN_USE_EVERY = 30.0
"""Seconds between two writes of the times at which tokens were last used."""
REMOVE_SESSIONS_EVERY = 3600.0
"""Seconds between two removals of sessions and links that have expired."""
REPORT_FAILURES_EVERY = 60.0
"""Seconds between two reports of failed authentications."""

BUILDS_AT_ONCE = 3
"""Builds have side-job workers of their own, so that no other side job waits for them."""


class Services:
    """Starts the services of one Windlass process. They stop with `stack`, in reverse order."""

    def __init__(self, settings: Settings, stack: AsyncExitStack, notify: Notify) -> None:
        self.settings = settings
        self.notify = notify
        self.stack = stack
        self._worker: Worker | None = None
        self._worker_follows = False
        self._runs_crews = False
        self._runner: Runner | None = None

    @cached_property
    def _kickoffs(self) -> KickoffStore:
        """One for the worker and the API, because it limits how many chunks of files are read at once."""
        return KickoffStore(self.infrastructure.database)

    def check_address(self) -> None:
        """Raises WindlassError when the HTTP server could not listen. A database that was started would be in vain."""
        check_free(self.settings.host, self.settings.port)

    async def start_infrastructure(self) -> Infrastructure:
        """Opens the infrastructure. All other services but the runner use it."""
        self.infrastructure = await open_infrastructure(self.settings, self.stack, self.notify)
        self.resolver = await self.stack.enter_async_context(serving(self._new_resolver()))
        return self.infrastructure

    def _new_resolver(self) -> Resolver:
        infrastructure = self.infrastructure
        connect = connector(infrastructure.key_ring, infrastructure.providers, infrastructure.identity.subject)
        return Resolver(infrastructure.key_ring, CredentialStore(infrastructure.database), connect)

    async def start_runner(self) -> Runner:
        self._runs_crews = True
        self._runner = runner = await asyncio.to_thread(runner_of, self.settings, self.notify)
        return await self.stack.enter_async_context(serving(runner))

    async def start_side_jobs(self) -> None:
        database = self.infrastructure.database
        retaining = Retaining(
            RetentionStore(database), KickoffStore(database), SourceStore(database), self.settings.retention
        )
        removals = Removals(
            RetentionStore(database),
            Stops(Endings(database)),
            ManagingStore(database),
            user_deletion(self.settings, database, self.infrastructure.tokens),
        )
        webhooks = WebhookStore(database)
        jobs = SideJobs(database.url, side_jobs(retaining, removals, StatisticsStore(database), webhooks))
        await self.stack.enter_async_context(serving(SideJobWorker(jobs)))
        delivering = Delivering(
            webhooks,
            self._endpoints,
            self.infrastructure.key_ring,
            self._sender,
            partial(status_url, self.settings.public_url),
            partial(Callbacks(self.infrastructure.tokens).url, self.settings.public_url),
        )
        deliveries = SideJobs(
            database.url, [SideJob(WEBHOOKS, delivering.run)], at_once=ENDPOINTS_AT_ONCE, look_every=1.0
        )
        await self.stack.enter_async_context(serving(SideJobWorker(deliveries)))

    @cached_property
    def _sender(self) -> Sender:
        return Sender(self.settings.webhook_allow)

    @cached_property
    def _endpoints(self) -> Endpoints:
        infrastructure = self.infrastructure
        return Endpoints(infrastructure.key_ring, infrastructure.tokens.key_for(b"windlass webhooks"))

    @cached_property
    def _checkouts(self) -> Checkouts:
        return Checkouts(SourceStore(self.infrastructure.database), place_for_code(self.settings) / "sources")

    @cached_property
    def _environments(self) -> Environments:
        return environments_of(self.settings, self._reader)

    @cached_property
    def _reader(self) -> BoundedReader:
        return BoundedReader(crew_account(self.settings.crew_user))

    @cached_property
    def sources(self) -> Sources:
        """Takes in the files of projects: uploads, and repositories."""
        return Sources(
            SourceStore(self.infrastructure.database),
            self.settings.home / "uploads",
            partial(server_builder, self.settings),
            allow_private=self.settings.git_allow_private,
        )

    async def start_builds(self, runner: Runner, crew_environments: CrewEnvironments) -> None:
        """Does builds of deployments in this process, BUILDS_AT_ONCE at the same time, and removes what they left."""
        database = self.infrastructure.database
        store, checkouts, environments = BuildStore(database), self._checkouts, self._environments
        building = Building(
            store,
            sources=self.sources,
            checkouts=checkouts,
            environments=environments,
            reader=self._reader,
            runner=runner,
            crew_environments=crew_environments,
            resolver=self.resolver,
        )
        jobs = SideJobs(database.url, [SideJob(JOB, building.run)], at_once=BUILDS_AT_ONCE, look_every=1.0)
        await self.stack.enter_async_context(serving(SideJobWorker(jobs)))
        removal = Removal(store, checkouts, environments)
        await self.stack.enter_async_context(serving(BackgroundTasks(removal.remove_unused)))

    async def start_worker(
        self,
        runner: Runner,
        environments: CrewEnvironments,
        *,
        observers: Sequence[Observer] = (),
        given: Collection[Path] = (),
        interpreters: Interpreters | None = None,
        code: ServedCode | None = None,
        deployments: Sequence[str] | None = None,
    ) -> Worker:
        """Starts a worker. `given` are the projects that the server was started with.

        `deployments` are the slugs of the deployments whose kickoffs it runs, None for all.
        """
        settings, store = self.settings, self._kickoffs
        if self.infrastructure.exclusive:
            await store.end_all_leases()
        config = WorkerConfig(
            settings.slots,
            settings.lease,
            settings.renewal,
            settings.max_losses,
            settings.limits,
            settings.files,
            TrustedProjects.of(settings.project_owners, given),
            interpreters or interpreters_of_command(None),
            code or ServedCode(),
            deployments=None if deployments is None else tuple(deployments),
            deployed=DeployedCode(self._checkouts, self._environments, self.resolver),
            fault=self._folder_check,
            reader=self._reader,
        )
        listener, key_ring = self.infrastructure.listener, self.infrastructure.key_ring
        worker = Worker(store, listener, runner, environments, key_ring, config, observers=observers)
        self._worker = await self.stack.enter_async_context(serving(worker))
        return worker

    async def start_http(self, root: str | None, *, worker_follows: bool = False) -> str:
        """Starts the HTTP server. Returns the URL at which clients reach it. `root` is the crew at the root, if any.

        With `worker_follows`, the server is not ready before a worker is started.
        """
        self._worker_follows = worker_follows
        settings, infrastructure = self.settings, self.infrastructure
        database, listener = infrastructure.database, infrastructure.listener
        rates = RateLimits(settings.failed_auth_limit, settings.request_limit, settings.user_request_limit)
        tokens = TokenStore(database, infrastructure.tokens.rules)
        access = TokenAuthenticator(infrastructure.tokens, tokens, listener, rates)
        most_open = max(1, settings.max_connections // 2)
        streams = EventStreams(KickoffReads(database), listener, most=most_open, most_of_user=MOST_STREAMS_OF_A_USER)
        crew_api = CrewApi(
            Crews(DeploymentStore(database), listener),
            access,
            Acceptor(Accepting(database, max_waiting=settings.max_waiting, user_share=settings.user_queue_share)),
            Statuses(KickoffReads(database), listener),
            KickoffRules(self._endpoints, settings.user_max_priority, timedelta(days=settings.user_max_days_ahead)),
            settings.max_body,
            settings.request_timeout,
            Stops(Endings(database)),
            settings.stop_grace,
            Approvals(Questions(database)),
            Deletions(RetentionStore(database)),
            LargeAnswers(settings.home, settings.large_answers),
            self._kickoffs.files,
            streams,
            Shares(most_open, "requests that wait"),
            Tickets(infrastructure.tokens),
            Callbacks(infrastructure.tokens),
        )
        control = self._control_api(access)
        self.dashboard = self._new_dashboard(control, crew_api)
        health = health_routes(
            {"database": self._database_fault, "folders": self._folder_check, "worker": self._worker_fault},
            lambda: self._runner.degraded() if self._runner else [],
            lambda: self._runner.failed_warm_ups() if self._runner else 0,
        )
        addresses = Addresses(root, settings.crew_domain)
        app = Application(
            crew_api,
            [
                *health,
                *control_routes(control),
                *CrewaiCli(control).routes(),
                *Oidc(infrastructure.identity).routes(),
                *Pages(self.dashboard).routes(),
                *self._metrics(control),
            ],
            addresses,
            public_url=settings.public_url,
            hosts=hosts_of(settings),
        )
        server = HttpServer(
            app,
            settings.host,
            settings.port,
            trusted_proxies=settings.trusted_proxies,
            headers_within=settings.request_timeout,
            limits=ConnectionLimits(
                settings.max_connections, settings.max_connections_per_address, settings.send_timeout
            ),
        )
        await self._report_access(access)
        await self.stack.enter_async_context(serving(server))
        await self.stack.enter_async_context(serving(streams))  # stopped first, so that the server need not wait
        warn_without_tls(settings, self.notify)
        self.address_here = self.dashboard.here = http_url(settings.host, server.port)
        if settings.issuer is None and is_loopback(settings.host):
            infrastructure.identity.issue_at(self.address_here)
        return settings.public_url or self.address_here

    def _new_dashboard(self, control: ControlApi, crew_api: CrewApi) -> Dashboard:
        tokens = self.infrastructure.tokens
        sessions = Sessions(self.infrastructure.database, tokens, control.access.failures)
        config = openid_of(self.settings)
        client = OpenIdClient(config, tokens.key_for(b"windlass openid")) if config else None
        return Dashboard(control, crew_api, sessions, tokens.key_for(b"windlass notice"), client)

    async def sign_in_link(self) -> str:
        """Returns the address that signs the owner in to the dashboard, once."""
        code = await self.dashboard.sessions.new_link(OWNER)
        return f"{self.dashboard.server_url}/ui/sign-in?code={code.reveal()}"

    def _control_api(self, access: TokenAuthenticator) -> ControlApi:
        infrastructure = self.infrastructure
        overview = OverviewStore(infrastructure.database)
        variables = Variables(VariableStore(infrastructure.database), infrastructure.key_ring)
        settings = self.settings
        usual = Options(max_waiting=settings.max_waiting, limits=settings.limits, retention=settings.retention)
        management = Management(
            DeploymentStore(infrastructure.database), overview, infrastructure.tokens, variables, usual
        )
        return ControlApi(
            access,
            infrastructure.tokens,
            management,
            overview,
            AuditStore(infrastructure.database),
            Deploys(
                DeploymentStore(infrastructure.database),
                ManagingStore(infrastructure.database),
                Builds(BuildStore(infrastructure.database), infrastructure.listener),
                self.sources,
                allow_local_git=self.settings.git_allow_private,
            ),
            Uploads(),
            infrastructure.identity,
            Credentials(
                CredentialStore(infrastructure.database),
                infrastructure.key_ring,
                infrastructure.providers,
                infrastructure.identity.subject,
            ),
            Deletions(RetentionStore(infrastructure.database)),
            Approvals(Questions(infrastructure.database)),
            StatisticsStore(infrastructure.database),
            DeploymentWebhooks(
                WebhookStore(infrastructure.database),
                DeploymentStore(infrastructure.database),
                AuditStore(infrastructure.database),
                self._endpoints,
                infrastructure.key_ring,
                self._sender,
            ),
            self.settings.max_body,
            self.settings.request_timeout,
            self.settings.public_url,
        )

    def _metrics(self, control: ControlApi) -> list[Route]:
        settings = self.settings
        is_open = is_loopback(settings.host) and settings.public_url is None
        return Metrics(control.access, control.overview, is_open).routes() if settings.metrics else []

    async def drain(self, stop_now: asyncio.Event) -> None:
        """Lets the runs of this process end in time, if a worker was started."""
        if self._worker is not None:
            await self._worker.drain(self.settings.drain_grace, stop_now)

    async def _database_fault(self) -> str | None:
        database = self.infrastructure.database
        try:
            if not await database.answers():
                return "The database does not answer."
            if not await is_migrated(database):
                return (
                    "The tables of the database are not those of this version. Restart the server, which migrates them."
                )
        except DatabaseUnavailable as error:
            return error.message
        return await self._write_check()

    async def _worker_fault(self) -> str | None:
        if self._worker.claiming if self._worker else not self._worker_follows:
            return None
        return "The worker of this process claims no kickoffs: it has not started yet, or it stops."

    @cached_property
    def _write_check(self) -> CachedCheck:
        return self._cached(partial(write_fault, self.infrastructure.database), SLOW)

    @cached_property
    def _folder_check(self) -> CachedCheck:
        home = self.settings.home
        folders = {"WINDLASS_HOME": home, "the folder of uploads": home / "uploads"}
        if self._runs_crews:
            code = place_for_code(self.settings)
            folders |= {f"the folder of {name}": code / name for name in ("runs", "sources", "environments")}
        slow = "The disk of WINDLASS_HOME does not answer in time."
        return self._cached(Folders(folders).fault, slow)

    def _cached(self, check: Check, slow: str) -> CachedCheck:
        cached = CachedCheck(check, slow)
        self.stack.push_async_callback(cached.stop)
        return cached

    async def _report_access(self, access: TokenAuthenticator) -> None:
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
            await self.dashboard.sessions.remove_expired()
            await asyncio.sleep(REMOVE_SESSIONS_EVERY)

        async def write_last() -> None:
            with suppress(DatabaseUnavailable):
                await access.use.write()

        self.stack.push_async_callback(write_last)
        self.stack.callback(access.failures.report)
        await self.stack.enter_async_context(
            serving(BackgroundTasks(write_token_use, report_failures, remove_expired_sessions))
        )

"""The parts that several services of one process share: stores, folders, the senders of webhooks."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from windlass.access.tokens import OWNER
from windlass.aio import serving, set_within
from windlass.deployments.checkouts import Checkouts
from windlass.deployments.resolution import Resolver
from windlass.deployments.secret_reads import connector
from windlass.deployments.sources import Sources
from windlass.lifecycle.readiness import CachedCheck, Folders
from windlass.projects.bounded_reader import BoundedReader
from windlass.runner.crew_account import crew_account, users_of_deployments
from windlass.store.credentials import CredentialStore
from windlass.store.crew_users import CrewUsers
from windlass.store.kickoffs import KickoffStore
from windlass.store.sources import SourceStore
from windlass.webhooks.endpoints import Endpoints
from windlass.webhooks.sending import Sender
from windlass.wiring.infrastructure import open_infrastructure
from windlass.wiring.setup import environments_of, place_for_code, server_builder

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from windlass.api.server import HttpServer
    from windlass.config import Settings
    from windlass.dashboard.dashboard import Dashboard
    from windlass.deployments.builds import Builds
    from windlass.lifecycle.event_streams import EventStreams
    from windlass.lifecycle.readiness import Check
    from windlass.lifecycle.statuses import Statuses
    from windlass.lifecycle.worker import Worker
    from windlass.projects.environments import Environments
    from windlass.runner import Runner
    from windlass.wiring.infrastructure import Infrastructure, Notify, WhileWaiting


@dataclass(frozen=True, slots=True)
class Http:
    """An HTTP server that answers. Clients reach it at `address`, and commands on this machine at `address_here`.

    `waits` are those that requests wait in.
    """

    address: str
    address_here: str
    dashboard: Dashboard
    server: HttpServer
    streams: EventStreams
    waits: tuple[Statuses, Builds]

    async def drain(self, within: float, stop_now: asyncio.Event) -> None:
        """Answers requests that wait for something, and lets the others end within these seconds."""
        await self.streams.stop()
        for waits in self.waits:
            waits.stop()
        await self.server.drain(within, stop_now)

    async def sign_in_link(self) -> str:
        """Returns the address that signs the owner in to the dashboard, once."""
        code = await self.dashboard.sessions.new_link(OWNER)
        return f"{self.dashboard.server_url}/ui/sign-in?code={code.reveal()}"


class Shared:
    """The parts of one Windlass process. Each is made for the first service that uses it.

    The services stop with `stack`, in reverse order of their start. `runner` and `worker` are those of this process,
    None before they start and where the process has none.
    """

    def __init__(
        self,
        settings: Settings,
        stack: AsyncExitStack,
        notify: Notify,
        infrastructure: Infrastructure,
        resolver: Resolver,
    ) -> None:
        self.settings = settings
        self.stack = stack
        self.notify = notify
        self.infrastructure = infrastructure
        self.database = infrastructure.database
        self.resolver = resolver
        self.runner: Runner | None = None
        self.worker: Worker | None = None
        self.http: Http | None = None
        self.stopping = False
        """Whether the process was asked to stop. The server is not ready then."""

    @classmethod
    async def open(
        cls,
        settings: Settings,
        stack: AsyncExitStack,
        notify: Notify,
        while_waiting: WhileWaiting = lambda _: nullcontext(),
    ) -> Shared:
        """Opens the infrastructure, which all services use. `while_waiting` runs while tables have to be migrated."""
        infrastructure = await open_infrastructure(settings, stack, notify, while_waiting)
        connect = connector(infrastructure.key_ring, infrastructure.providers, infrastructure.identity.subject)
        resolver = Resolver(infrastructure.key_ring, CredentialStore(infrastructure.database), connect)
        return cls(settings, stack, notify, infrastructure, await stack.enter_async_context(serving(resolver)))

    async def drain(self, stop_now: asyncio.Event) -> None:
        """Lets the runs and then the requests of this process end in time, if it has a worker and an HTTP server.

        Requests are answered while runs end, and for the delay after which load balancers have noticed the stop.
        """
        self.stopping = True
        if self.http is not None:
            self.http.server.leave()
        delay = asyncio.create_task(self._delay(stop_now))
        if self.worker is not None:
            await self.worker.drain(self.settings.drain_grace, stop_now)
        await delay
        if self.http is not None:
            await self.http.drain(self.settings.drain_grace, stop_now)

    async def _delay(self, stop_now: asyncio.Event) -> None:
        if self.http is not None and self.settings.stop_delay:
            await set_within(stop_now, self.settings.stop_delay)

    @cached_property
    def kickoffs(self) -> KickoffStore:
        """One for the worker and the API, because it limits how many chunks of files are read at once."""
        return KickoffStore(self.database)

    @cached_property
    def sender(self) -> Sender:
        return Sender(self.settings.webhook_allow)

    @cached_property
    def endpoints(self) -> Endpoints:
        infrastructure = self.infrastructure
        return Endpoints(infrastructure.key_ring, infrastructure.tokens.key_for(b"windlass webhooks"))

    @cached_property
    def checkouts(self) -> Checkouts:
        return Checkouts(SourceStore(self.database), place_for_code(self.settings) / "sources")

    @cached_property
    def environments(self) -> Environments:
        return environments_of(self.settings, self.reader)

    @cached_property
    def reader(self) -> BoundedReader:
        return BoundedReader(crew_account(self.settings.crew_user))

    @cached_property
    def crew_users(self) -> CrewUsers:
        settings = self.settings
        return CrewUsers(self.database, users_of_deployments(crew_account(settings.crew_user), settings.crew_users))

    @cached_property
    def sources(self) -> Sources:
        """Takes in the files of projects: uploads, and repositories."""
        return Sources(
            SourceStore(self.database),
            self.settings.home / "uploads",
            partial(server_builder, self.settings),
            allow_private=self.settings.git_allow_private,
        )

    @cached_property
    def folder_check(self) -> CachedCheck:
        """Whether the folders of the server can be written, and those of runs where the process has a runner."""
        home = self.settings.home
        folders = {"WINDLASS_HOME": home, "the folder of uploads": home / "uploads"}
        if self.runner is not None:
            code = place_for_code(self.settings)
            folders |= {f"the folder of {name}": code / name for name in ("runs", "sources", "environments")}
        return self.cached_check(Folders(folders).fault, "The disk of WINDLASS_HOME does not answer in time.")

    def cached_check(self, check: Check, slow: str) -> CachedCheck:
        cached = CachedCheck(check, slow)
        self.stack.push_async_callback(cached.stop)
        return cached

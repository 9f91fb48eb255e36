"""The API over HTTP on a test's database, put together as the server does it, without a worker: what a worker would
write, a test writes through the store.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api.described import check_answer
from patience import DEADLINE
from store.shared_database import connected
from windlass import aio
from windlass.access.authentication import RateLimits, TokenAuthenticator
from windlass.access.callbacks import Callbacks
from windlass.access.sessions import Sessions
from windlass.access.tickets import Tickets
from windlass.access.tokens import Tokens
from windlass.api.application import Addresses, Application, Hosts, health_routes
from windlass.api.connections import ConnectionLimits
from windlass.api.control_api.application import control_routes
from windlass.api.control_api.dependencies import ControlApi
from windlass.api.control_api.upload_limit import Uploads
from windlass.api.crew_api.kickoff_requests import KickoffRules
from windlass.api.crew_api.openapi import crew_document
from windlass.api.crew_api.routes import OPERATIONS, CrewApi
from windlass.api.crewai_cli import CrewaiCli
from windlass.api.metrics import Metrics
from windlass.api.oidc import Oidc
from windlass.api.server import HttpServer
from windlass.api.streaming_json import LargeAnswers
from windlass.dashboard.dashboard import Dashboard
from windlass.dashboard.pages import Pages
from windlass.deployments.builds import Builds
from windlass.deployments.credentials import Credentials
from windlass.deployments.crews import Crews
from windlass.deployments.deploys import Deploys
from windlass.deployments.identity import Identity
from windlass.deployments.management import Management
from windlass.deployments.members import Members
from windlass.deployments.sources import Sources
from windlass.deployments.variables import Variables
from windlass.deployments.webhooks import DeploymentWebhooks
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.manifest import Manifest
from windlass.kickoffs.retention import Retention
from windlass.lifecycle.accept import Acceptor, Stops
from windlass.lifecycle.approvals import Approvals
from windlass.lifecycle.deletion import Deletions
from windlass.lifecycle.event_streams import EventStreams, Shares
from windlass.lifecycle.statuses import Statuses
from windlass.projects.options import Options
from windlass.secrets.key_ring import KeyRing, MasterKey
from windlass.secrets.providers import provider
from windlass.store.audit import AuditStore
from windlass.store.builds import BuildStore
from windlass.store.credentials import CredentialStore
from windlass.store.deployments import Deployment, DeploymentStore
from windlass.store.files import FileStore
from windlass.store.kickoffs import KickoffStore
from windlass.store.listener import Listener
from windlass.store.managing import ManagingStore
from windlass.store.members import MemberStore
from windlass.store.migrate import schema_of
from windlass.store.overview import OverviewStore
from windlass.store.retention import RetentionStore
from windlass.store.signing_keys import SigningKeyStore
from windlass.store.sources import SourceStore
from windlass.store.statistics import StatisticsStore
from windlass.store.tokens import TokenStore
from windlass.store.variables import VariableStore
from windlass.store.webhooks import WebhookStore
from windlass.webhooks.endpoints import Endpoints
from windlass.webhooks.sending import Sender

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from windlass.projects.uv import Builder
    from windlass.secrets.oidc import SigningKey
    from windlass.store.database import Database

KEY_RING = KeyRing([MasterKey(bytes(32))])
LARGEST_BODY = 1024 * 1024
LARGE_ANSWERS = 64 * 1024 * 1024
STOP_GRACE = 5.0

INPUTS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "topic": {"type": "string", "description": "What to write about."},
        "length": {"type": "integer", "minimum": 1, "default": 3},
        "anything": {},
    },
    "required": ["topic", "audience"],
}
TASKS: list[dict[str, str | None]] = [
    {"key": "5d41402abc4b2a76b9719d911017c592", "name": "research", "agent": "Researcher"},
    {"key": "7d793037a0760186574b0282f2f435e7", "name": None, "agent": "Writer"},
]
GOOD = {"topic": "tides", "audience": "sailors"}
"""Inputs that the crew above takes."""

_numbers = itertools.count(1)


def manifest(inputs_schema: dict[str, Any] | None = None, warnings: Sequence[dict[str, str]] = ()) -> Manifest:
    schema = INPUTS_SCHEMA if inputs_schema is None else inputs_schema
    found = {"kind": "crew", "name": "Writers", "inputs_schema": schema, "tasks": TASKS, "warnings": warnings}
    return Manifest.from_json(found)


@dataclass
class Server:
    """`http` checks each answer against the OpenAPI document of the crew that a request is for."""

    url: str
    database: Database
    listener: Listener
    http: httpx.AsyncClient
    tokens: Tokens
    deployments: DeploymentStore
    kickoffs: KickoffStore
    statuses: Statuses
    http_server: HttpServer
    access: TokenAuthenticator
    large_answers: LargeAnswers
    uploads: Path
    identity: Identity
    dashboard: Dashboard
    waits: Shares
    _stopping: AsyncExitStack

    @property
    def port(self) -> int:
        return httpx.URL(self.url).port or 0

    async def crew(
        self,
        slug: str | None = None,
        inputs_schema: dict[str, Any] | None = None,
        warnings: Sequence[dict[str, str]] = (),
    ) -> Crew:
        """A crew of the test's own."""
        slug = slug or f"writers-{next(_numbers)}"
        source = {"kind": "crew", "root": "/nowhere", "entrypoint": "nothing", "interpreter": "none", "preload": []}
        deployment = await self.deployments.register(
            slug, digest="0" * 64, source=source, manifest=manifest(inputs_schema, warnings)
        )
        shown = await self.tokens.show(deployment)
        return Crew(self, deployment, shown.organization.reveal(), shown.user.reveal(), f"/crews/{slug}")

    async def stop(self) -> None:
        await self._stopping.aclose()


@dataclass
class Crew:
    """A deployed crew with its two tokens. `path` is that of its base URL."""

    server: Server
    deployment: Deployment
    token: str
    user_token: str
    path: str
    document: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        found = self.deployment.version
        assert found is not None
        self.document = crew_document(self.deployment.slug, found.manifest, self.path, OPERATIONS)

    @property
    def base_url(self) -> str:
        return f"{self.server.url}{self.path}"

    def at(self, server: Server) -> Crew:
        """The same crew, asked for at another server."""
        return Crew(server, self.deployment, self.token, self.user_token, self.path)

    async def request(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        **more: Any,
    ) -> httpx.Response:
        """With the organization's token, unless `token` (a "" sends none) or a header says otherwise."""
        given = self.token if token is None else token
        both = {**({"Authorization": f"Bearer {given}"} if given else {}), **(headers or {})}
        described = {"document": self.document, "path": path.partition("?")[0]}
        return await self.server.http.request(
            method, f"{self.base_url}{path}", headers=_in_bytes(both), extensions=described, **more
        )

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.request("GET", path, **more)

    async def post(self, body: Any, **more: Any) -> httpx.Response:
        """A kickoff with this body; bytes are sent as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | more.pop("headers", {})
        return await self.request("POST", "/kickoff", content=content, headers=headers, **more)

    async def stop(self, kickoff: str, **more: Any) -> dict[str, Any]:
        answer = await self.request("POST", f"/stop/{kickoff}", **more)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def kickoff(self, inputs: dict[str, Any] | None = None, *, token: str | None = None, **members: Any) -> str:
        """The id of a kickoff that was accepted."""
        answer = await self.post({"inputs": GOOD if inputs is None else inputs, **members}, token=token)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["kickoff_id"])

    async def status(self, kickoff: str, **more: Any) -> dict[str, Any]:
        answer = await self.get(f"/status/{kickoff}", **more)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def organization_token(self, *, profile: str | None = None, expires_at: datetime | None = None) -> str:
        token = await self.server.tokens.create(self.deployment.id, profile=profile, expires_at=expires_at)
        return token.reveal()

    async def token_of(self, user: str) -> str:
        """A user token of a user who is new."""
        added = await self.server.tokens.add_user(user)
        return (await self.server.tokens.create(self.deployment.id, user=added)).reveal()

    async def row(self, kickoff: str) -> dict[str, Any]:
        found = await self.server.database.row("SELECT * FROM kickoffs WHERE id = %(id)s::uuid", {"id": kickoff})
        assert found is not None
        return found


async def start_server(  # noqa: PLR0913 - each a setting of the server
    database_url: str,
    *,
    root: str | None = None,
    domain: str | None = None,
    public_url: str | None = None,
    trusted_proxies: list[str] | None = None,
    seconds: float = 20.0,
    rates: RateLimits = RateLimits(),  # noqa: B008 - it can't be changed
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 - it can't be changed
    hosts: Hosts | None = None,
    host: str = "127.0.0.1",
    large_answers: int = LARGE_ANSWERS,
    issuer: str | None = None,
    signing_keys: Sequence[SigningKey] = (),
) -> Server:
    """`seconds` are those that a client has for its whole request; `host` is the address to listen on."""
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(connected(database_url, connections=4))
        listener = Listener(database_url)
        stack.push_async_callback(listener.stop)
        await listener.start()
        tokens = await Tokens.open(TokenStore(database), KEY_RING)
        kickoffs, deployments = KickoffStore(database), DeploymentStore(database)
        statuses = Statuses(kickoffs, listener)
        identity = await Identity.open(SigningKeyStore(database), KEY_RING, issuer, signing_keys)
        identity.follow(listener)
        await identity.start()
        stack.push_async_callback(identity.stop)
        api = CrewApi(
            Crews(deployments, listener),
            access := TokenAuthenticator(tokens, TokenStore(database), listener, rates),
            Acceptor(kickoffs),
            statuses,
            KickoffRules(endpoints := Endpoints(KEY_RING, b"webhooks")),
            LARGEST_BODY,
            seconds,
            Stops(kickoffs),
            STOP_GRACE,
            Approvals(kickoffs),
            Deletions(RetentionStore(database)),
            kept := LargeAnswers(Path(tempfile.gettempdir()), large_answers),
            FileStore(database),
            streams := EventStreams(kickoffs, listener, most=20, most_of_user=5),
            waits := Shares(500, "requests that wait"),
            Tickets(tokens),
            Callbacks(tokens),
        )

        async def ready() -> str | None:
            return (await schema_of(database)).fault if await database.answers() else "The database does not answer."

        overview = OverviewStore(database)
        variables = Variables(VariableStore(database), KEY_RING)
        usual = Options(limits=Limits(timeout=3600.0), retention=Retention(30, 7, 14, 1), max_waiting=10_000)
        members = Members(MemberStore(database))
        management = Management(deployments, overview, tokens, variables, members, usual)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sources = Sources(SourceStore(database), folder / "uploads", builder)
        builds = Builds(BuildStore(database), listener)
        deploys = Deploys(deployments, ManagingStore(database), builds, sources, allow_local_git=False)
        control = ControlApi(
            access,
            tokens,
            management,
            members,
            overview,
            AuditStore(database),
            deploys,
            Uploads(),
            identity,
            Credentials(CredentialStore(database), KEY_RING, provider, identity.subject),
            Deletions(RetentionStore(database)),
            Approvals(kickoffs),
            StatisticsStore(database),
            DeploymentWebhooks(
                WebhookStore(database),
                deployments,
                AuditStore(database),
                endpoints,
                KEY_RING,
                Sender(["127.0.0.1"], timeout=2 * DEADLINE),
            ),
            LARGEST_BODY,
            seconds,
            public_url,
        )
        dashboard = Dashboard(
            control, api, Sessions(database, tokens, access.failures), tokens.key_for(b"windlass notice")
        )
        routes = [
            *health_routes({"database": ready}),
            *control_routes(control),
            *CrewaiCli(control).routes(),
            *Oidc(identity).routes(),
            *Metrics(access, overview, public_url is None).routes(),
            *Pages(dashboard).routes(),
        ]
        app = Application(api, routes, Addresses(root, domain), public_url=public_url, hosts=hosts)
        http_server = HttpServer(app, host, 0, trusted_proxies=trusted_proxies, headers_within=seconds, limits=limits)
        await http_server.start()
        stack.push_async_callback(http_server.stop)
        await stack.enter_async_context(aio.serving(streams))
        http = await stack.enter_async_context(
            httpx.AsyncClient(verify=False, timeout=DEADLINE, event_hooks={"response": [check_answer]})
        )
        async with asyncio.timeout(DEADLINE):
            await listener.listening.wait()
        url = f"http://127.0.0.1:{http_server.port}"
        dashboard.here = url
        if issuer is None:
            identity.issue_at(url)
        return Server(
            url,
            database,
            listener,
            http,
            tokens,
            deployments,
            kickoffs,
            statuses,
            http_server,
            access,
            kept,
            folder / "uploads",
            identity,
            dashboard,
            waits,
            stack.pop_all(),
        )


@asynccontextmanager
async def serving(database_url: str, **settings: Any) -> AsyncIterator[Server]:
    server = await start_server(database_url, **settings)
    try:
        yield server
    finally:
        await server.stop()


def builder() -> AbstractContextManager[Builder]:
    raise AssertionError("no test of the API fetches a repository")


def _in_bytes(headers: Mapping[str, str | bytes]) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() if isinstance(value, str) else value for name, value in headers.items()}


async def raw(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of what comes back for these very bytes; (0, {}, b"") when the connection is closed
    without an answer.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await answer_of(reader)
    finally:
        writer.close()


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    async with asyncio.timeout(DEADLINE):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return 0, {}, b""
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return int(first.split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def until(condition: Callable[[], Awaitable[bool]], what: str, seconds: float = DEADLINE) -> None:
    """Asks again until it holds; fails loudly when it doesn't within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                if await condition():
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"{seconds:g} s went by, and not yet: {what}")


def unknown_id() -> str:
    return str(new_id())

"""The HTTP side."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from windlass.api.addresses import Addresses
from windlass.api.application import Application
from windlass.api.crew import CrewApi
from windlass.api.health import health_routes
from windlass.api.server import HttpServer
from windlass.errors import DatabaseUnavailable
from windlass.lifecycle.accept import Acceptor
from windlass.lifecycle.access import Access
from windlass.lifecycle.crews import Crews
from windlass.lifecycle.loops import Loops
from windlass.lifecycle.parts import running
from windlass.lifecycle.statuses import Statuses
from windlass.lifecycle.stopping import Stops
from windlass.store.deployments import DeploymentStore
from windlass.store.kickoffs import KickoffStore
from windlass.store.migrate import is_migrated
from windlass.store.tokens import TokenStore

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from windlass.config import Settings
    from windlass.lifecycle.tokens import TokenUse
    from windlass.lifecycle.worker import Worker
    from windlass.wiring.ground import Ground

TOKEN_USE_EVERY = 30.0
"""Seconds between writes of when tokens were last used."""


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


def address_of(settings: Settings, server: HttpServer) -> str:
    """Where clients reach it."""
    return settings.public_url or f"http://{_reachable(settings.host)}:{server.port}"


def _reachable(host: str) -> str:
    named = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104 - a name to translate
    return f"[{named}]" if ":" in named and not named.startswith("[") else named


async def _write_last(use: TokenUse) -> None:
    with suppress(DatabaseUnavailable):
        await use.write()

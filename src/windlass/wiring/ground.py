"""What every process of ours stands on: the database, the key ring, the tokens."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass import log
from windlass.embedded.account import make_home
from windlass.embedded.postgres import EmbeddedPostgres, running_url
from windlass.lifecycle.parts import running, seen_through
from windlass.lifecycle.tokens import Tokens
from windlass.store.database import Database
from windlass.store.deployments import DeploymentStore
from windlass.store.healing import Healing
from windlass.store.listener import Listener
from windlass.store.migrate import migrate
from windlass.store.tokens import TokenStore
from windlass.vault.key_ring import KeyRing, load_key_ring
from windlass.vault.secret import Secret

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from windlass.config import Settings

    Say = Callable[[str], None]

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


@asynccontextmanager
async def administration(settings: Settings) -> AsyncIterator[Administration]:
    """On the database of the settings, else on that of a server that runs on this home, else on the embedded one,
    started for it.
    """
    async with AsyncExitStack() as stack:
        url = outside_url(settings) or running_url(settings.home) or await embedded_url(settings, stack, _quietly)
        database = await stack.enter_async_context(Database(url, connections=2))
        await migrate(database)
        tokens = await Tokens.open(TokenStore(database), key_ring_of(settings))
        yield Administration(tokens, DeploymentStore(database), url)


async def open_ground(settings: Settings, stack: AsyncExitStack, say: Say) -> Ground:
    outside = outside_url(settings)
    url = outside or await embedded_url(settings, stack, say)
    database = await stack.enter_async_context(Database(url))
    if applied := await migrate(database):
        say("making the tables" if 1 in applied else "bringing the tables up to date")
        logger.event("database.migrated", migrations=len(applied))
    key_ring = key_ring_of(settings)
    tokens = await Tokens.open(TokenStore(database), key_ring)
    listener = Listener(url)
    healing = Healing(database)
    listener.on_gap(healing.begin)
    stack.push_async_callback(healing.stop)
    await stack.enter_async_context(running(listener))
    return Ground(database, listener, key_ring, tokens, alone=outside is None)


async def embedded_url(settings: Settings, stack: AsyncExitStack, say: Say) -> str:
    postgres = EmbeddedPostgres(settings.home, report=say)
    stack.push_async_callback(_stop_embedded, postgres)
    url = await seen_through(asyncio.to_thread(postgres.start))
    logger.event("database.started", home=settings.home)
    return url


async def _stop_embedded(postgres: EmbeddedPostgres) -> None:
    await asyncio.to_thread(postgres.stop)
    logger.event("database.stopped")


def outside_url(settings: Settings) -> str | None:
    return settings.database_url.get_secret_value() if settings.database_url else None


def key_ring_of(settings: Settings) -> KeyRing:
    make_home(settings.home)
    given = Secret(settings.master_key.get_secret_value()) if settings.master_key else None
    return load_key_ring(settings.home / "master.key", given)


def _quietly(_: str) -> None:
    pass

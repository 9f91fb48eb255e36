"""Opens the parts that every Windlass process needs: the database, the key ring, the tokens."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from windlass import log
from windlass.access.sessions import Sessions
from windlass.access.tokens import Tokens
from windlass.aio import serving, shielded
from windlass.deployments.identity import Identity
from windlass.embedded_postgres.home import make_home
from windlass.embedded_postgres.postgres import EmbeddedPostgres, running_url
from windlass.lifecycle.accept import Stops
from windlass.lifecycle.deletion import Deletions, UserDeletion
from windlass.secrets.key_file import load_key_ring
from windlass.secrets.oidc import SigningKey, doubt_about, keys_of_variable
from windlass.secrets.providers import Providers, provider
from windlass.secrets.providers.endpoints import Endpoints
from windlass.secrets.secret import Secret
from windlass.store.database import Database, PoolRecovery, refuse_transaction_pooling
from windlass.store.deployments import DeploymentStore
from windlass.store.kickoffs import KickoffStore
from windlass.store.listener import MASTER_KEYS, Listener
from windlass.store.migrate import migrate
from windlass.store.retention import RetentionStore
from windlass.store.signing_keys import SigningKeyStore
from windlass.store.tokens import ProviderRules, TokenStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from windlass.config import Settings
    from windlass.secrets.key_ring import KeyRing

    Notify = Callable[[str], None]

PATIENCE = 15.0
"""Seconds, in addition to the grace time of a stop, that the deletion of a user waits until the user's kickoffs have
ended.
"""

logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class Administration:
    """The parts for commands that read or change tokens, users and deployments of a server."""

    tokens: Tokens
    sessions: Sessions
    deployments: DeploymentStore
    users: UserDeletion
    database_url: str


@dataclass(frozen=True, slots=True)
class Infrastructure:
    """The parts that every Windlass process needs.

    `exclusive` is whether no other worker can use the database: this process has just started it. `providers` returns
    the providers of secret managers.
    """

    database: Database
    listener: Listener
    key_ring: KeyRing
    tokens: Tokens
    identity: Identity
    exclusive: bool
    providers: Providers


@asynccontextmanager
async def administration(settings: Settings) -> AsyncIterator[Administration]:
    """Opens the parts of `Administration` on the database of `database_for_commands`."""
    async with database_for_commands(settings) as database:
        tokens = await Tokens.open(TokenStore(database, provider_rules(settings)), key_ring_of(settings))
        deployments = DeploymentStore(database)
        sessions = Sessions(database, tokens)
        yield Administration(tokens, sessions, deployments, user_deletion(settings, database, tokens), database.url)


@asynccontextmanager
async def database_for_commands(settings: Settings) -> AsyncIterator[Database]:
    """Opens the database of the settings, else that of a server that runs on this home.

    When there is neither, starts the embedded database for the time of the block.
    """
    async with AsyncExitStack() as stack:
        url = (
            await outside_url(settings)
            or running_url(settings.home)
            or await embedded_url(settings, stack, _quietly, for_command=True)
        )
        database = await stack.enter_async_context(Database(url, connections=2))
        await migrate(database)
        yield database


def provider_rules(settings: Settings) -> ProviderRules:
    return ProviderRules(
        timedelta(days=settings.sign_in_token_days),
        timedelta(days=settings.sign_in_token_max_days),
        timedelta(days=settings.sign_in_within_days),
    )


def user_deletion(settings: Settings, database: Database, tokens: Tokens) -> UserDeletion:
    return UserDeletion(
        Deletions(RetentionStore(database)),
        tokens,
        Stops(KickoffStore(database)),
        DeploymentStore(database),
        patience=settings.stop_grace + PATIENCE,
    )


async def open_infrastructure(settings: Settings, stack: AsyncExitStack, notify: Notify) -> Infrastructure:
    providers = partial(provider, endpoints=Endpoints.parsed(settings.secret_endpoints))
    signing_keys = signing_keys_of(settings, notify)
    outside = await outside_url(settings)
    url = outside or await embedded_url(settings, stack, notify)
    database = await stack.enter_async_context(Database(url))
    if applied := await migrate(database):
        notify("making the tables" if 1 in applied else "bringing the tables up to date")
        logger.event("database.migrated", migrations=len(applied))
    key_ring = key_ring_of(settings)
    tokens = await Tokens.open(TokenStore(database, provider_rules(settings)), key_ring)
    listener = Listener(url)
    identity = await Identity.open(SigningKeyStore(database), key_ring, settings.issuer, signing_keys)
    identity.follow(listener)
    listener.on(MASTER_KEYS, lambda _: key_ring.master_keys.look_again())
    listener.on_gap(key_ring.master_keys.look_again)
    recovery = PoolRecovery(database)
    listener.on_gap(recovery.begin)
    stack.push_async_callback(recovery.stop)
    await stack.enter_async_context(serving(listener))
    await stack.enter_async_context(serving(identity))
    return Infrastructure(
        database, listener, key_ring, tokens, identity, exclusive=outside is None, providers=providers
    )


def signing_keys_of(settings: Settings, notify: Notify) -> list[SigningKey]:
    """Returns the keys of OIDC_PRIVATE_KEY, none without it. Raises BadSigningKey. Warns of a doubtful OIDC_ISSUER."""
    if settings.oidc_issuer and (doubt := doubt_about(settings.oidc_issuer)):
        notify(f"warning: {doubt} (OIDC_ISSUER)")
    given = settings.oidc_private_key
    return keys_of_variable(given.get_secret_value()) if given else []


async def embedded_url(settings: Settings, stack: AsyncExitStack, notify: Notify, *, for_command: bool = False) -> str:
    postgres = EmbeddedPostgres(settings.home, report=notify, for_command=for_command)
    stack.push_async_callback(_stop_embedded, postgres)
    url = await shielded(asyncio.to_thread(postgres.start))
    logger.event("database.started", home=settings.home)
    return url


async def _stop_embedded(postgres: EmbeddedPostgres) -> None:
    await asyncio.to_thread(postgres.stop)
    logger.event("database.stopped")


async def outside_url(settings: Settings) -> str | None:
    """Returns WINDLASS_DATABASE_URL, None without it. Raises SettingsError if it leads to an unusable pooler."""
    if settings.database_url is None:
        return None
    url = settings.database_url.get_secret_value()
    await refuse_transaction_pooling(url)
    return url


def key_ring_of(settings: Settings) -> KeyRing:
    make_home(settings.home)
    given = Secret(settings.master_key.get_secret_value()) if settings.master_key else None
    return load_key_ring(settings.home / "master.key", given)


def _quietly(_: str) -> None:
    pass

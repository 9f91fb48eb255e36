"""Opens the parts that every Windlass process needs: the database, the key ring, the tokens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from windlass import log
from windlass.access.tokens import Tokens
from windlass.administration.opening import (
    demand_tables,
    embedded_url,
    key_ring_of,
    migrates_at_start,
    outside_url,
    pooler_of,
    provider_rules,
)
from windlass.aio import serving
from windlass.deployments.identity import Identity
from windlass.errors import DatabaseUnavailable
from windlass.secrets.oidc import SigningKey, doubt_about, keys_of_variable
from windlass.secrets.providers import Providers, provider
from windlass.secrets.providers.endpoints import Endpoints
from windlass.store.database import Database, PoolRecovery
from windlass.store.listener import MASTER_KEYS, Listener
from windlass.store.migrate import MigrationNeeded, migrate
from windlass.store.signing_keys import SigningKeyStore
from windlass.store.tokens import TokenStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager, AsyncExitStack

    from windlass.config import Settings
    from windlass.secrets.key_ring import KeyRing

    Notify = Callable[[str], None]
    WhileWaiting = Callable[[str], AbstractAsyncContextManager[None]]

LOOK_EVERY = 1.0
"""Seconds between two looks whether the tables are migrated."""

logger = log.logger(__name__)


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


async def open_infrastructure(
    settings: Settings, stack: AsyncExitStack, notify: Notify, while_waiting: WhileWaiting
) -> Infrastructure:
    """Opens the database with the tables of this version, and what needs it.

    `while_waiting` runs while the tables have to be migrated by somebody else. It gets the reason of the wait.
    """
    providers = partial(provider, endpoints=Endpoints.parsed(settings.secret_endpoints))
    signing_keys = signing_keys_of(settings, notify)
    outside = await outside_url(settings)
    url = outside or await embedded_url(settings, stack, notify)
    database = await stack.enter_async_context(Database(url, pooler=pooler_of(settings)))
    if migrates_at_start(settings):
        if applied := await migrate(database):
            notify("making the tables" if 1 in applied else "bringing the tables up to date")
            logger.event("database.migrated", migrations=len(applied))
    else:
        await _wait_for_tables(database, notify, while_waiting)
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


async def _wait_for_tables(database: Database, notify: Notify, while_waiting: WhileWaiting) -> None:
    """Returns when this version can use the tables. Raises DatabaseTooNew if it can't at all."""
    try:
        return await demand_tables(database)
    except MigrationNeeded as needed:
        logger.event("database.waiting_for_migration", reason=needed.message)
        notify(f"waiting for the tables. {needed}")
        reason = str(needed)
    async with while_waiting(reason):
        while not await _has_tables(database):  # noqa: ASYNC110 - a new database has nothing to notify of
            await asyncio.sleep(LOOK_EVERY)
    return None


async def _has_tables(database: Database) -> bool:
    try:
        await demand_tables(database)
    except (MigrationNeeded, DatabaseUnavailable):
        return False
    return True


def signing_keys_of(settings: Settings, notify: Notify) -> list[SigningKey]:
    """Returns the keys of OIDC_PRIVATE_KEY, none without it. Raises BadSigningKey. Warns of a doubtful OIDC_ISSUER."""
    if settings.oidc_issuer and (doubt := doubt_about(settings.oidc_issuer)):
        notify(f"warning: {doubt} (OIDC_ISSUER)")
    given = settings.oidc_private_key
    return keys_of_variable(given.get_secret_value()) if given else []

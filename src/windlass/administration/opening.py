"""Opens the database and the key ring, and the parts for commands that change tokens, users and crews.

Most commands on the machine of a server open them, so this module imports nothing that only servers need.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from windlass import log
from windlass.access.tokens import Tokens
from windlass.aio import shielded
from windlass.embedded_postgres.home import make_home
from windlass.embedded_postgres.postgres import EmbeddedPostgres, running_url
from windlass.secrets.key_file import load_key_ring
from windlass.secrets.secret import Secret
from windlass.store.database import (
    Database,
    demand_session_defaults,
    refuse_read_only,
    refuse_transaction_pooling,
)
from windlass.store.deployments import DeploymentStore
from windlass.store.migrate import migrate, schema_of
from windlass.store.tokens import ProviderRules, TokenStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from windlass.access.sessions import Sessions
    from windlass.config import Settings
    from windlass.lifecycle.deletion import UserDeletion
    from windlass.secrets.key_ring import KeyRing
    from windlass.store.migrate import Schema

    Notify = Callable[[str], None]

logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class Administration:
    """The parts for commands that read or change tokens, users and deployments of a server."""

    tokens: Tokens
    deployments: DeploymentStore
    settings: Settings
    database: Database

    @property
    def sessions(self) -> Sessions:
        from windlass.access.sessions import Sessions  # noqa: PLC0415 - few commands need it

        return Sessions(self.database, self.tokens)

    @property
    def users(self) -> UserDeletion:
        from windlass.administration.user_removal import user_deletion  # noqa: PLC0415 - few commands need it

        return user_deletion(self.settings, self.database, self.tokens)


@asynccontextmanager
async def administration(settings: Settings) -> AsyncIterator[Administration]:
    """Opens the parts of `Administration` on the database of `database_for_commands`."""
    async with database_for_commands(settings) as database:
        tokens = await Tokens.open(TokenStore(database, provider_rules(settings)), key_ring_of(settings))
        yield Administration(tokens, DeploymentStore(database), settings, database)


@asynccontextmanager
async def database_for_commands(settings: Settings) -> AsyncIterator[Database]:
    """Opens the database of `opened_database`, with the tables of this version.

    Raises MigrationNeeded in place of migrating a database that servers do not migrate (WINDLASS_MIGRATE_AT_START).
    """
    async with opened_database(settings) as database:
        if migrates_at_start(settings):
            await migrate(database)
        else:
            await demand_tables(database)
        yield database


def migrates_at_start(settings: Settings) -> bool:
    """Returns whether a server migrates its database. Nobody else could migrate the embedded one in time."""
    return settings.migrate_at_start or settings.database_url is None


async def demand_tables(database: Database) -> None:
    """Raises MigrationNeeded or DatabaseTooNew if this version can't use the tables."""
    found = await schema_of(database)
    if found.is_too_new:
        raise found.refusal
    if not found.is_complete:
        raise found.need


async def migrate_tables(settings: Settings) -> tuple[list[int], Schema]:
    """Migrates the database of `opened_database`. Returns the applied migrations, and the tables afterwards."""
    async with opened_database(settings) as database:
        return await migrate(database), await schema_of(database)


async def schema_of_settings(settings: Settings) -> Schema:
    """Compares the tables of `opened_database` with those of this version. Changes nothing."""
    async with opened_database(settings) as database:
        return await schema_of(database)


@asynccontextmanager
async def opened_database(settings: Settings) -> AsyncIterator[Database]:
    """Opens the database of the settings, else that of a server that runs on this home.

    When there is neither, starts the embedded database for the time of the block.
    """
    async with AsyncExitStack() as stack:
        url = (
            await outside_url(settings)
            or running_url(settings.home)
            or await embedded_url(settings, stack, _quietly, for_command=True)
        )
        yield await stack.enter_async_context(Database(url, connections=2))


def provider_rules(settings: Settings) -> ProviderRules:
    return ProviderRules(
        timedelta(days=settings.sign_in_token_days),
        timedelta(days=settings.sign_in_token_max_days),
        timedelta(days=settings.sign_in_within_days),
    )


async def embedded_url(settings: Settings, stack: AsyncExitStack, notify: Notify, *, for_command: bool = False) -> str:
    postgres = EmbeddedPostgres(settings.home, report=notify, for_command=for_command)
    has_started = False

    async def stop() -> None:
        await asyncio.to_thread(postgres.stop)
        if has_started:
            logger.event("database.stopped")

    stack.push_async_callback(stop)
    url = await shielded(asyncio.to_thread(postgres.start))
    has_started = True
    logger.event("database.started", home=settings.home)
    return url


async def outside_url(settings: Settings) -> str | None:
    """Returns the URL of the PostgreSQL of the settings, not that of a pooler. Returns None without one.

    Raises SettingsError if it leads to an unusable server, or if the pooler gives connections that can't be used.
    """
    if settings.database_url is None:
        return None
    url = (settings.database_direct_url or settings.database_url).get_secret_value()
    await refuse_transaction_pooling(url)
    await refuse_read_only(url)
    if pooler := pooler_of(settings):
        await demand_session_defaults(pooler)
    return url


def pooler_of(settings: Settings) -> str | None:
    """Returns the URL for statements if it is not that of `outside_url`."""
    if settings.database_url is None or settings.database_direct_url is None:
        return None
    return settings.database_url.get_secret_value()


def key_ring_of(settings: Settings) -> KeyRing:
    make_home(settings.home)
    given = Secret(settings.master_key.get_secret_value()) if settings.master_key else None
    return load_key_ring(settings.home / "master.key", given)


def _quietly(_: str) -> None:
    pass

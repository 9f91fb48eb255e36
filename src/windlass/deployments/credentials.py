"""Credentials: how the server proves to secret managers who it is (docs/how-to/secrets.md)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from windlass import log
from windlass.access.authentication import Rate, TooManyRequests
from windlass.aio import in_thread
from windlass.deployments.configurations import (
    LONGEST_SHOWN,
    merged,
    model_of,
    open_configuration,
    plain,
    seal_configuration,
    secret_members,
    validated,
)
from windlass.deployments.variables import Reading, when_read
from windlass.errors import WindlassError
from windlass.kickoffs.ids import new_id
from windlass.rights import Role
from windlass.secrets.key_ring import Damaged, UnknownKey
from windlass.secrets.provider import BadCredential, ProviderUnavailable, SecretError
from windlass.secrets.providers import NAMES
from windlass.store.audit import Change
from windlass.store.credentials import CredentialRow, NewCredential

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from pydantic import BaseModel

    from windlass.secrets.key_ring import KeyRing
    from windlass.secrets.provider import Manager, Provider, Subject
    from windlass.secrets.providers import Providers
    from windlass.store.audit import Actor
    from windlass.store.credentials import CredentialStore
    from windlass.store.deployments import Deployment

SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
RESERVED = {"providers", "test"}
"""Names that would be ambiguous in paths of the control API."""
AT_ONCE = 4
"""Requests to secret managers that a server makes at once for people. Each takes a thread until it is over."""
SECONDS = 20.0
"""The longest wait for a secret manager."""
PER_SECOND, BURST = 0.5, 10.0
"""Requests to secret managers for one person: on average, and at once."""
MOST_NAMES = 100
THREAD = "windlass-credentials"

Found = TypeVar("Found")
logger = log.logger(__name__)


class NoSuchCredential(WindlassError):  # noqa: N818 - describes the credential
    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no credential {name[:LONGEST_SHOWN]!r}.",
            "`windlass credentials list` and GET /credentials list them.",
        )


@dataclass(frozen=True, slots=True)
class GivenCredential:
    """A credential to add. `configuration` has the members of the method's model."""

    name: str
    provider: str
    method: str
    configuration: Mapping[str, Any]
    is_default: bool = False
    roles: Sequence[str] = ()
    deployments: Sequence[str] = ()
    """Whose variables may use it: those of these deployments, and those that people with these roles set. Neither:
    those that owners of the server set."""


@dataclass(frozen=True, slots=True)
class CredentialPatch:
    """What to change of a credential. None leaves a value as it is.

    A member of `configuration` that is None or empty is removed, but a secret one is kept.
    """

    name: str | None = None
    method: str | None = None
    configuration: Mapping[str, Any] | None = None
    is_default: bool | None = None
    roles: Sequence[str] | None = None
    deployments: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential as it is shown. `configuration` has its members that are not secret. It is None if it can't be
    decrypted, or if this release does not know its method.

    `roles` and `deployments` are whose variables may use it, `variables` is the number of those that do. `created_by`
    and `updated_by` are names of users.
    """

    name: str
    provider: str
    method: str
    read: Reading
    configuration: dict[str, Any] | None
    is_default: bool
    roles: Sequence[str]
    deployments: Sequence[str]
    variables: int
    created_at: datetime
    created_by: str | None
    updated_at: datetime
    updated_by: str | None


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a handshake with a secret manager, in words. `code` is that of the error."""

    ok: bool
    message: str
    hint: str = ""
    code: str | None = None


class Credentials:
    """Keeps the credentials of this server. `subject` returns the tokens that identify the server to providers."""

    def __init__(self, store: CredentialStore, key_ring: KeyRing, provider: Providers, subject: Subject) -> None:
        self._store = store
        self._key_ring = key_ring
        self._provider = provider
        self._subject = subject
        self._asking: set[asyncio.Future[Any]] = set()
        self._rate: Rate[str] = Rate(PER_SECOND, BURST)

    def providers(self) -> list[Provider]:
        return [self._provider(name) for name in NAMES]

    async def all(self, *, sees: UUID | None = None) -> list[Credential]:
        """Returns the credentials in the order of their names: all, or those that the user `sees` can use."""
        uses = await self._store.uses()
        return [self._shown(row, uses.get(row.id, 0)) for row in await self._store.all(sees=sees)]

    async def permitted(self, deployment: Deployment, by: Actor) -> list[Credential]:
        """Returns the credentials that the person may choose for variables of the deployment."""
        role, uses = by.role or Role.VIEWER, await self._store.uses()
        rows = [row for row in await self._store.all() if row.permits(deployment.id, role)]
        return [self._shown(row, uses.get(row.id, 0)) for row in rows]

    async def get(self, name: str, *, sees: UUID | None = None) -> Credential:
        """Raises NoSuchCredential, also for one that the user `sees` can't use."""
        row = await self._row(name, sees)
        return self._shown(row, (await self._store.uses()).get(row.id, 0))

    async def used_by(self, name: str, *, limit: int, sees: UUID | None = None) -> list[str]:
        """Returns variables that use the credential and that the user sees, as `deployment/NAME`.

        Raises NoSuchCredential.
        """
        return await self._store.used_by(await self._row(name, sees), limit=limit, sees=sees)

    async def add(self, given: GivenCredential, by: Actor) -> Credential:
        """Raises BadCredential, CredentialExists, TooManyCredentials and NoSuchDeployment."""
        check_name(given.name)
        configuration = validated(self._provider(given.provider), given.method, given.configuration)
        new = replace(
            self._sealed(new_id(), given.name, given.provider, given.method, configuration, given.is_default),
            roles=given.roles,
            deployments=given.deployments,
        )
        facts: dict[str, Any] = {"provider": given.provider, "method": given.method, "default": given.is_default}
        facts |= {"roles": list(given.roles), "deployments": list(given.deployments)}
        await self._store.add(new, Change(by, "credential.add", given.name, facts))
        logger.event("credential.added", credential=given.name, provider=given.provider, method=given.method)
        return await self.get(given.name)

    async def change(self, name: str, patch: CredentialPatch, by: Actor) -> Credential:
        """Raises NoSuchCredential, BadCredential, CredentialExists, NoSuchDeployment, and CredentialInUse when
        variables use the default credential of the provider, and it would no longer be one.
        """
        if patch.name is not None:
            check_name(patch.name)

        def altered(row: CredentialRow) -> NewCredential:
            provider, method = self._provider(row.provider), patch.method or row.method
            given = merged(model_of(provider, method), self._stored_members(row), patch.configuration or {})
            configuration = validated(provider, method, given)
            is_default = row.is_default if patch.is_default is None else patch.is_default
            return replace(
                self._sealed(row.id, patch.name or row.name, row.provider, method, configuration, is_default),
                roles=row.roles if patch.roles is None else patch.roles,
                deployments=row.deployments if patch.deployments is None else patch.deployments,
            )

        changed = {one: getattr(patch, one) for one in ("name", "method", "is_default", "roles", "deployments")}
        facts = {one: value for one, value in changed.items() if value is not None}
        change = Change(by, "credential.change", name, {**facts, "members": sorted(patch.configuration or ())})
        if not await self._store.change(name, altered, change):
            raise NoSuchCredential(name)
        logger.event("credential.changed", credential=name)
        return await self.get(patch.name or name)

    async def remove(self, name: str, by: Actor) -> None:
        """Raises NoSuchCredential, and CredentialInUse while variables use it."""
        if not await self._store.remove(name, Change(by, "credential.remove", name)):
            raise NoSuchCredential(name)
        logger.event("credential.removed", credential=name)

    async def test(self, name: str, by: Actor) -> Check:
        """Proves to the secret manager who the server is. Reads no secret.

        Raises NoSuchCredential, and TooManyRequests as `names` does.
        """
        row = await self._row(name, by.sees)
        try:
            configuration = self._opened(row)
        except SecretError as error:
            return _failed(error)
        return await self._checked(self._provider(row.provider), configuration, by)

    async def test_unsaved(self, given: GivenCredential, by: Actor) -> Check:
        """As `test`, with a credential that is not stored. Raises BadCredential."""
        provider = self._provider(given.provider)
        return await self._checked(provider, validated(provider, given.method, given.configuration), by)

    async def names(self, name: str, prefix: str, by: Actor) -> list[str]:
        """Returns names of secrets that begin with `prefix`, MOST_NAMES at most.

        Raises NoSuchCredential, SecretError, and TooManyRequests for too many requests of one person or at once.
        """
        row = await self._row(name, by.sees)
        provider, configuration = self._provider(row.provider), self._opened(row)
        found = await self._ask(provider, configuration, by, lambda one: one.names(prefix, MOST_NAMES))
        return found[:MOST_NAMES]

    async def _checked(self, provider: Provider, configuration: BaseModel, by: Actor) -> Check:
        try:
            return Check(True, await self._ask(provider, configuration, by, lambda one: one.check()))
        except SecretError as error:
            return _failed(error)

    async def _ask(
        self, provider: Provider, configuration: BaseModel, by: Actor, ask: Callable[[Manager], Found]
    ) -> Found:
        """Returns what `ask` returns for the secret manager. It goes on in its thread when the caller does not wait."""
        if seconds := self._rate.take(by.user):
            raise TooManyRequests("You have sent many requests to secret managers.", "Wait a little.", seconds)
        if len(self._asking) >= AT_ONCE:
            raise TooManyRequests(f"The server sends {AT_ONCE} requests to secret managers at once.", "Try again.", 1.0)
        asking = in_thread(partial(self._asked, provider, configuration, ask), THREAD)
        self._asking.add(asking)
        asking.add_done_callback(self._end)
        try:
            async with asyncio.timeout(SECONDS):
                return await asyncio.shield(asking)
        except TimeoutError:
            raise ProviderUnavailable(
                f"{provider.title} does not answer within {SECONDS:g} s.", "Check its address and the network."
            ) from None

    def _end(self, asking: asyncio.Future[Any]) -> None:
        self._asking.discard(asking)
        if not asking.cancelled():
            asking.exception()  # of one that nobody waits for any more

    def _asked(self, provider: Provider, configuration: BaseModel, ask: Callable[[Manager], Found]) -> Found:
        try:
            manager = provider.connect(configuration, self._subject)
            try:
                return ask(manager)
            finally:
                manager.close()
        except WindlassError:
            raise
        except Exception as error:  # noqa: BLE001 - a client of a provider may raise any; its text may quote a secret
            logger.event("secrets.client_failed", provider=provider.name, error=type(error).__name__)
            raise SecretError(
                f"The client of {provider.title} failed ({type(error).__name__}).", "Check the configuration."
            ) from None

    async def _row(self, name: str, sees: UUID | None) -> CredentialRow:
        found = await self._store.get(name, sees=sees)
        if found is None:
            raise NoSuchCredential(name)
        return found

    def _sealed(
        self, id_: UUID, name: str, provider: str, method: str, configuration: BaseModel, is_default: bool
    ) -> NewCredential:
        sealed = seal_configuration(self._key_ring, id_, plain(configuration))
        return NewCredential(id_, name, provider, method, sealed, is_default, when_read(method) == "at deploy")

    def _shown(self, row: CredentialRow, variables: int) -> Credential:
        return Credential(
            row.name,
            row.provider,
            row.method,
            when_read(row.method) or "at deploy",
            self._shown_members(row),
            row.is_default,
            row.roles,
            row.deployments,
            variables,
            row.created_at,
            row.created_by,
            row.updated_at,
            row.updated_by,
        )

    def _opened(self, row: CredentialRow) -> BaseModel:
        """Raises BadCredential."""
        try:
            stored = open_configuration(self._key_ring, row)
        except (Damaged, UnknownKey):
            raise BadCredential(
                f"The configuration of the credential {row.name} can't be decrypted.", "Give all of its members again."
            ) from None
        return validated(self._provider(row.provider), row.method, stored)

    def _shown_members(self, row: CredentialRow) -> dict[str, Any] | None:
        try:
            hidden = secret_members(model_of(self._provider(row.provider), row.method))
            configuration = open_configuration(self._key_ring, row)
        except (BadCredential, Damaged, UnknownKey):
            return None
        return {name: value for name, value in configuration.items() if name not in hidden}

    def _stored_members(self, row: CredentialRow) -> dict[str, Any]:
        """Returns none that can't be decrypted, so that all of them can be given again."""
        try:
            return open_configuration(self._key_ring, row)
        except (Damaged, UnknownKey):
            return {}


def _failed(error: SecretError) -> Check:
    return Check(False, error.message, error.hint, error.code)


def check_name(name: str) -> None:
    """Raises BadCredential."""
    if not SLUG.fullmatch(name) or name in RESERVED:
        raise BadCredential(
            f"{name[:LONGEST_SHOWN]!r} is no name of a credential.",
            "A name has small letters, digits and hyphens, at most 63 of them, and no hyphen at an end. "
            f"The names {' and '.join(sorted(RESERVED))} are reserved.",
        )

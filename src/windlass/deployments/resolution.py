"""Resolves the variables of a deployment to their values, for a kickoff or for a build (docs/how-to/secrets.md).

A value that is read with a workload identity is read for each kickoff, and never stored. A value that is read with a
static credential is read by builds, and stored encrypted.
"""

# See docs/decisions/security.md#a-credential-is-checked-when-it-is-bound-and-when-it-is-read
# See docs/decisions/secrets.md#a-request-to-a-secret-manager-is-sent-once

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from windlass import metrics
from windlass.deployments.secret_reads import Answer, Connections
from windlass.deployments.variables import not_permitted, open_values, seal_value
from windlass.lifecycle.worker_config import UnreadableSecrets
from windlass.rights import Role
from windlass.secrets.provider import (
    WORKLOAD_IDENTITY,
    CredentialNotPermitted,
    NoCredential,
    SecretError,
    UnusableSecret,
    extract,
    parse_reference,
)
from windlass.store.variables import ReadValues
from windlass_child.protocol.truncation import beginning

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from windlass.deployments.secret_reads import Connect
    from windlass.secrets.key_ring import KeyRing
    from windlass.store.credentials import CredentialRow, CredentialStore
    from windlass.store.deployments import DeploymentStore
    from windlass.store.sealed_variables import SealedVariable
    from windlass.store.variables import VariableStore

DEADLINE = 15.0
"""Seconds in which all secrets of a kickoff or of a build must be read."""
MOST_BYTES = 1 << 20
"""Bytes that the values from secret managers have together. All of them are sent to the process of the kickoff."""
LONGEST_ERROR = 1900
"""Characters."""

Secret = tuple[UUID, str]
"""The id of a credential, and the name of a secret."""
Report = dict[str, object]


@dataclass(frozen=True, slots=True)
class Resolved:
    """Variables with their values.

    `missing` names the variables that are read at deploy and have no value yet. `read_at_deploy` has the encrypted
    values that were read with static credentials now, to be stored. `report` describes all reads without values; it is
    None when nothing was read.
    """

    values: Mapping[str, str] = field(repr=False)
    missing: tuple[str, ...] = ()
    read_at_deploy: ReadValues | None = None
    report: Report | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """A variable from a secret manager, and its credential, None if there is none."""

    variable: SealedVariable
    credential: CredentialRow | None
    refusal: CredentialNotPermitted | None = None
    """Why the variable may not use its credential: an error, also where a value is stored."""

    @property
    def is_static(self) -> bool:
        return self.credential is not None and self.credential.method != WORKLOAD_IDENTITY

    @property
    def is_due_at_kickoff(self) -> bool:
        """A variable without a credential keeps the value of its deploy, and is an error if it has none."""
        if self.refusal is not None:
            return True
        return self.variable.value is None if self.credential is None else not self.is_static

    @property
    def secret(self) -> Secret | None:
        name = (self.variable.secret_name or "").partition("#")[0]
        return (self.credential.id, name) if self.credential and self.refusal is None else None

    @property
    def place(self) -> str:
        return f"{self.credential.provider} (credential {self.credential.name})" if self.credential else "its provider"

    def value_in(self, answer: Answer) -> str:
        """Raises SecretError."""
        if answer.error:
            raise answer.error
        _, key = parse_reference(self.variable.secret_name or "")
        return extract(answer.value, key)

    def described(self, answer: Answer, error: SecretError | None) -> Report:
        """Returns what the event of a kickoff shows of this variable."""
        members = {
            "name": self.variable.name,
            "provider": self.credential.provider if self.credential else self.variable.provider,
            "credential": self.credential.name if self.credential else None,
            "secret_name": self.variable.secret_name,
            "ms": round(answer.seconds * 1000, 1),
            "error": error.code if error else None,
        }
        return {name: value for name, value in members.items() if value is not None}


class Resolver:
    """Resolves the variables of deployments. It is a service: a stop closes its connections to secret managers.

    `connect` returns the manager of a credential. It blocks, and raises SecretError.
    """

    def __init__(self, key_ring: KeyRing, credentials: CredentialStore, connect: Connect) -> None:
        self._key_ring = key_ring
        self._credentials = credentials
        self._connections = Connections(connect)

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        self._connections.close()

    async def resolve(
        self, deployment: UUID, variables: Sequence[SealedVariable], *, at_deploy: bool = False
    ) -> Resolved:
        """Returns the values. Reads those that are read at each kickoff, and `at_deploy` all from secret managers.

        Raises UnreadableSecrets, DatabaseUnavailable, UnknownKey and Damaged.
        """
        values = self.stored(deployment, variables)
        managed = [one for one in variables if one.secret_name is not None]
        if not managed:
            return Resolved(values)
        at, began = datetime.now(UTC), time.monotonic()
        credentials = await self._credentials.of_variables(managed)
        found = await self._permitted(deployment, [Read(one, credential_of(one, credentials)) for one in managed])
        reads = [one for one in found if at_deploy or one.is_due_at_kickoff]
        if not reads:
            return Resolved(values, missing(managed, values))
        answers = await self._answers(reads)
        values |= (read := judged(reads, answers, time.monotonic() - began)).values
        static = [
            replace(
                one.variable,
                value=seal_value(self._key_ring, deployment, one.variable.name, read.values[one.variable.name]),
            )
            for one in reads
            if one.is_static
        ]
        return Resolved(
            values, missing(managed, values), ReadValues(at, tuple(static)) if static else None, read.report
        )

    def stored(self, deployment: UUID, variables: Sequence[SealedVariable]) -> dict[str, str]:
        """Returns the values that are stored. Raises UnknownKey and Damaged."""
        return open_values(self._key_ring, deployment, [one for one in variables if one.value is not None])

    async def _permitted(self, deployment: UUID, reads: Sequence[Read]) -> list[Read]:
        """Returns the reads, with a refusal where the credential is not permitted for the variable."""
        if all(one.credential is None or one.credential.permits(deployment, Role.DEVELOPER) for one in reads):
            return list(reads)
        roles = await self._credentials.set_as(deployment)
        return [
            one
            if one.credential is None
            or one.credential.permits(deployment, roles.get(one.variable.name, Role.DEVELOPER))
            else replace(one, refusal=not_permitted(one.credential))
            for one in reads
        ]

    async def _answers(self, reads: Sequence[Read]) -> dict[Secret, Answer]:
        """Reads each secret once, all at the same time."""
        self._connections.close_unused()
        credentials = {one.secret: one.credential for one in reads if one.secret and one.credential}
        async with asyncio.TaskGroup() as group:
            tasks = {
                secret: group.create_task(self._connections.of(credential).answer(secret[1], DEADLINE))
                for secret, credential in credentials.items()
            }
        return {secret: task.result() for secret, task in tasks.items()}


class DevVariables:
    """Resolves the variables of a project under `windlass dev`. Each load of the project counts as a deploy."""

    def __init__(self, deployments: DeploymentStore, variables: VariableStore, resolver: Resolver) -> None:
        self._deployments = deployments
        self._variables = variables
        self._resolver = resolver

    async def read(self, slug: str, notify: Callable[[str], None]) -> Mapping[str, str]:
        """Returns the values, and stores those that are read at deploy. If one can't be read, reports that, and returns
        the values that are stored.
        """
        deployment = await self._deployments.get(slug)
        if deployment is None:
            return {}
        variables = await self._variables.sealed(deployment.id)
        try:
            resolved = await self._resolver.resolve(deployment.id, variables, at_deploy=True)
        except UnreadableSecrets as error:
            notify(f"warning: {error} To try again, change a file of the project or start windlass dev again.")
            return self._resolver.stored(deployment.id, variables)
        if resolved.read_at_deploy:
            await self._variables.store_read(deployment.id, resolved.read_at_deploy)
        return resolved.values

    async def secrets(self, slug: str) -> frozenset[str]:
        """Returns the names of the secret variables."""
        deployment = await self._deployments.get(slug)
        found = [] if deployment is None else await self._variables.sealed(deployment.id)
        return frozenset(one.name for one in found if one.secret)


def credential_of(variable: SealedVariable, credentials: Sequence[CredentialRow]) -> CredentialRow | None:
    """Returns the credential that the variable names, or the default credential of its provider."""
    for one in credentials:
        if one.id == variable.credential_id or (one.is_default and one.provider == variable.provider):
            return one
    return None


def missing(managed: Sequence[SealedVariable], values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(one.name for one in managed if one.name not in values)


@dataclass(frozen=True, slots=True)
class Judged:
    values: dict[str, str] = field(repr=False)
    report: Report


def judged(reads: Sequence[Read], answers: Mapping[Secret, Answer], seconds: float) -> Judged:
    """Returns the values of the variables. Raises UnreadableSecrets if there is one without a value."""
    values: dict[str, str] = {}
    failures: list[tuple[Read, SecretError]] = []
    described: list[Report] = []
    for one in reads:
        answer, error = (
            answers[one.secret] if one.secret else Answer("", one.refusal or no_credential(one.variable)),
            None,
        )
        try:
            values[one.variable.name] = one.value_in(answer)
        except SecretError as raised:
            error = raised
            failures.append((one, error))
        described.append(one.described(answer, error))
    if sum(map(size_of, values.values())) > MOST_BYTES:
        too_large = UnusableSecret(f"The values from secret managers have more than {MOST_BYTES >> 10} KB together.")
        failures = [(one, too_large) for one in reads]
    report: Report = {"ms": round(seconds * 1000, 1), "variables": described}
    metrics.SECRET_RESOLUTIONS.observe(seconds)
    for one, error in failures:
        metrics.SECRET_FAILURES.labels(provider_of(one), error.code).inc()
    if failures:
        raise UnreadableSecrets(in_words(failures), report)
    return Judged(values, report)


def in_words(failures: Sequence[tuple[Read, SecretError]]) -> str:
    """Returns one line with the variables, and each cause once."""
    causes: dict[str, list[str]] = {}
    for one, error in failures:
        causes.setdefault(f"can't be read from {one.place}: {error}", []).append(one.variable.name)
    lines = (f"{', '.join(names)} {cause}" for cause, names in causes.items())
    return beginning(" ".join(" ".join(lines).split()), LONGEST_ERROR)


def no_credential(variable: SealedVariable) -> NoCredential:
    if variable.provider is None:
        return NoCredential("Its credential was removed.", "Set the variable again, with another credential.")
    return NoCredential(
        f"The provider {variable.provider} has no default credential.",
        "Choose one: windlass credentials change NAME --default",
    )


def provider_of(read: Read) -> str:
    return read.credential.provider if read.credential else read.variable.provider or "none"


def size_of(value: str) -> int:
    return len(value.encode())

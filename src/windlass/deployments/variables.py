"""The variables of a deployment, which its crew gets from the next kickoff on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from windlass.errors import WindlassError
from windlass.rights import Role
from windlass.secrets.key_ring import Sealed
from windlass.secrets.provider import WORKLOAD_IDENTITY, CredentialNotPermitted, NoCredential, parse_reference
from windlass.secrets.providers import provider
from windlass.store.audit import Change
from windlass.store.sealed_variables import SealedVariable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from windlass.secrets.key_ring import KeyRing
    from windlass.secrets.secret import Secret
    from windlass.store.audit import Actor
    from windlass.store.credentials import CredentialRow
    from windlass.store.deployments import Deployment
    from windlass.store.variables import VariableRow, VariableStore

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_NAME = 255
LONGEST_SECRET_NAME = 1000
LARGEST_VALUE = 64 * 1024
OURS = "WINDLASS_"


class BadVariable(WindlassError):  # noqa: N818 - describes the variable
    pass


class NoSuchVariable(WindlassError):  # noqa: N818 - describes the variable
    pass


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Where a value comes from: it is set directly (`value`), or read from a secret manager, with the `default`
    credential of `provider` or with `credential`, a name.
    """

    type: Literal["value", "default", "credential"] = "value"
    provider: str | None = None
    credential: str | None = None

    @property
    def is_managed(self) -> bool:
        return self.type != "value"


DIRECT = ValueSource()
Reading = Literal["at deploy", "at each kickoff"]


@dataclass(frozen=True, slots=True)
class GivenVariable:
    """A variable to set. One without a value keeps the one that it has, also a secret one with an empty value."""

    name: str
    value: Secret | None = None
    secret: bool = True
    source: ValueSource = DIRECT
    secret_name: str | None = None

    def to_audit(self) -> dict[str, Any]:
        where = {"type": self.source.type, "provider": self.source.provider, "credential": self.source.credential}
        managed = {"source": where, "secret_name": self.secret_name} if self.source.is_managed else {}
        return {"name": self.name, "secret": self.secret, **managed}


@dataclass(frozen=True, slots=True)
class Variable:
    """`value` is None for a secret variable, which is never shown. `updated_by` is the name of a user.

    `read` is when the value of one with a secret name is read, None while no credential can read it. `read_at` is when
    the last deploy read it.
    """

    name: str
    value: str | None
    secret: bool
    source: ValueSource
    secret_name: str | None
    read: Reading | None
    read_at: datetime | None
    updated_at: datetime
    updated_by: str | None


class Variables:
    def __init__(self, store: VariableStore, key_ring: KeyRing) -> None:
        self._store = store
        self._key_ring = key_ring

    async def of(self, deployment: Deployment) -> list[Variable]:
        """Returns the variables in the order of their names, with the values of those that are not secret."""
        return [self._shown(deployment.id, row) for row in await self._store.of_deployment(deployment.id)]

    async def set(self, deployment: Deployment, given: Sequence[GivenVariable], by: Actor) -> None:
        """Sets all of these, or none, and keeps the others. Raises BadVariable, TooManyVariables, NoCredential for a
        source without one, and CredentialNotPermitted for one that this person may not use here.
        """
        if len({one.name for one in given}) < len(given):
            raise BadVariable("A variable is given twice.", "Give each name once.")
        for one in given:
            check(one)

        def decide(before: Mapping[str, SealedVariable], usable: Sequence[CredentialRow]) -> list[SealedVariable]:
            check_permitted(deployment, given, usable, by.role or Role.VIEWER)
            return [self._sealed(deployment.id, one, before.get(one.name), usable) for one in given]

        await self._store.set(
            deployment.id,
            [one.name for one in given],
            decide,
            Change(by, "variable.set", deployment.slug, {"variables": [one.to_audit() for one in given]}),
            credentials=[one.source.credential for one in given if one.source.credential],
            providers=[one.source.provider for one in given if one.source.type == "default" and one.source.provider],
        )

    async def unset(self, deployment: Deployment, name: str, by: Actor) -> None:
        """Raises NoSuchVariable."""
        change = Change(by, "variable.unset", deployment.slug, {"name": name})
        if not await self._store.unset(deployment.id, name, change):
            raise NoSuchVariable(
                f"The deployment {deployment.slug} has no variable {name[:LONGEST_NAME]!r}.",
                f"`windlass env list {deployment.slug}` lists its variables.",
            )

    def _sealed(
        self, deployment: UUID, given: GivenVariable, before: SealedVariable | None, usable: Sequence[CredentialRow]
    ) -> SealedVariable:
        if given.source.is_managed:
            return managed(given, before, usable)
        has_one = before is not None and before.secret and before.value is not None and before.secret_name is None
        if given.value is None or (has_one and not given.value):
            return kept(given, before)
        value = seal_value(self._key_ring, deployment, given.name, given.value.reveal())
        return SealedVariable(given.name, value, given.secret)

    def _shown(self, deployment: UUID, row: VariableRow) -> Variable:
        hidden = row.secret or row.value is None
        value = None if hidden else open_value(self._key_ring, deployment, row.name, row.value or "")
        return Variable(
            row.name,
            value,
            row.secret,
            source_of(row),
            row.secret_name,
            when_read(row.method),
            row.read_at,
            row.updated_at,
            row.updated_by,
        )


def check_permitted(
    deployment: Deployment, given: Sequence[GivenVariable], usable: Sequence[CredentialRow], role: Role
) -> None:
    """Raises NoCredential, and CredentialNotPermitted."""
    for one in given:
        credential = credential_of(one.source, usable) if one.source.is_managed else None
        if credential is not None and not credential.permits(deployment.id, role):
            raise not_permitted(credential)


def not_permitted(credential: CredentialRow) -> CredentialNotPermitted:
    """Returns the error that names whom to ask."""
    who = f"{credential.updated_by}, who changed the credential last, or another" if credential.updated_by else "an"
    return CredentialNotPermitted(
        f"The credential {credential.name} is not permitted for this deployment.",
        f"Ask {who} owner of the server to permit it: windlass credentials change {credential.name} --deployments "
        "NAME,...",
    )


def managed(given: GivenVariable, before: SealedVariable | None, usable: Sequence[CredentialRow]) -> SealedVariable:
    """Returns a variable whose value comes from a secret manager.

    One that is read at deploy keeps its value until then. Raises NoCredential, BadCredential for a name that no secret
    can have, and BadVariable for a credential of another provider than the given one.
    """
    source, credential = given.source, credential_of(given.source, usable)
    if source.provider not in {None, credential.provider}:
        raise BadVariable(
            f"The credential {credential.name} of {given.name} is of the provider {credential.provider}.",
            "Leave out the provider.",
        )
    name, _ = parse_reference(given.secret_name or "")
    provider(credential.provider).check_name(name)
    value = before.value if before and when_read(credential.method) == "at deploy" else None
    is_default = source.type == "default"
    return SealedVariable(
        given.name,
        value,
        secret=True,
        provider=credential.provider if is_default else None,
        credential_id=None if is_default else credential.id,
        secret_name=given.secret_name,
    )


def credential_of(source: ValueSource, usable: Sequence[CredentialRow]) -> CredentialRow:
    """Raises NoCredential."""
    if source.type == "default":
        found = [one for one in usable if one.is_default and one.provider == source.provider]
        missing = f"There is no default credential of the provider {(source.provider or '')[:LONGEST_NAME]!r}."
    else:
        found = [one for one in usable if one.name == source.credential]
        missing = f"There is no credential {(source.credential or '')[:LONGEST_NAME]!r}."
    if not found:
        raise NoCredential(missing, "`windlass credentials list` lists the credentials.")
    return found[0]


def kept(given: GivenVariable, before: SealedVariable | None) -> SealedVariable:
    """Returns a variable with the direct value that it has. Raises BadVariable if it has none, or must not be shown."""
    if before is None or before.value is None or before.secret_name is not None:
        raise BadVariable(f"{given.name} has no value of its own yet.", "Give a value.")
    if before.secret and not given.secret:
        raise BadVariable(f"The value of {given.name} is secret, so it is never shown.", "Give the value again.")
    return SealedVariable(given.name, before.value, given.secret)


def source_of(row: VariableRow) -> ValueSource:
    if row.secret_name is None:
        return DIRECT
    return ValueSource("credential" if row.credential else "default", row.provider, row.credential)


def when_read(method: str | None) -> Reading | None:
    """Returns when values are read with a credential of this method, None without one."""
    if method is None:
        return None
    return "at each kickoff" if method == WORKLOAD_IDENTITY else "at deploy"


def check(given: GivenVariable) -> None:
    """Raises BadVariable for a name, a value or a source that can't be right. The message never quotes the value."""
    name = given.name
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise BadVariable(
            f"{name[:LONGEST_NAME]!r} is no name of a variable.",
            f"A name has letters, digits and underscores, does not begin with a digit, and has at most {LONGEST_NAME} "
            "characters.",
        )
    if name.startswith(OURS):
        raise BadVariable(f"{name} begins with {OURS}.", "Choose another name: crews get no such variables.")
    check_value(name, given.value.reveal() if given.value else "")
    check_source(given)


def check_value(name: str, value: str) -> None:
    """Raises BadVariable."""
    if "\0" in value:
        raise BadVariable(f"The value of {name} contains a NUL character, which no variable can hold.", "Remove it.")
    if len(value.encode("utf-8", "surrogatepass")) > LARGEST_VALUE:
        raise BadVariable(
            f"The value of {name} is larger than {LARGEST_VALUE >> 10} KB.", "Put it where the crew can read it."
        )


def check_source(given: GivenVariable) -> None:
    """Raises BadVariable for members that do not go together."""
    name, source = given.name, given.source
    if not source.is_managed:
        if given.secret_name is not None or source.provider or source.credential:
            raise BadVariable(
                f"{name} has a direct value, so it has no secret name and no credential.", "Leave them out."
            )
        return
    if given.value is not None:
        raise BadVariable(f"{name} takes its value from a secret manager.", "Leave out the value.")
    if not given.secret:
        raise BadVariable(f"{name} takes its value from a secret manager, so it is secret.", "Leave out `secret`.")
    if source.type == "default" and (source.credential or not source.provider):
        raise BadVariable(f"The source of {name} is the default credential of a provider.", "Give the provider alone.")
    if source.type == "credential" and not source.credential:
        raise BadVariable(f"The source of {name} is a credential.", "Give its name.")
    check_secret_name(name, given.secret_name)


def check_secret_name(variable: str, given: str | None) -> None:
    """Raises BadVariable."""
    if not given or len(given) > LONGEST_SECRET_NAME or not given.isprintable():
        raise BadVariable(
            f"{variable} needs the name of a secret, of at most {LONGEST_SECRET_NAME} printable characters.",
            "Give name, or name#json_key.",
        )
    parse_reference(given)


def seal_value(key_ring: KeyRing, deployment: UUID, name: str, value: str) -> str:
    return key_ring.seal(value, Sealed.VARIABLE.of(f"{deployment}/{name}"))


def open_value(key_ring: KeyRing, deployment: UUID, name: str, value: str) -> str:
    """Raises UnknownKey and Damaged."""
    return key_ring.open(value, Sealed.VARIABLE.of(f"{deployment}/{name}"))


def open_values(key_ring: KeyRing, deployment: UUID, sealed: Iterable[SealedVariable]) -> dict[str, str]:
    """Returns the values by name, without variables that have none. Raises UnknownKey and Damaged."""
    return {one.name: open_value(key_ring, deployment, one.name, one.value) for one in sealed if one.value is not None}

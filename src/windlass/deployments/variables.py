"""The variables of a deployment, which its crew gets from the next kickoff on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.errors import WindlassError
from windlass.secrets.key_ring import Sealed
from windlass.store.audit import Change
from windlass.store.variables import SealedVariable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from windlass.secrets.key_ring import KeyRing
    from windlass.secrets.secret import Secret
    from windlass.store.audit import Actor
    from windlass.store.deployments import Deployment
    from windlass.store.variables import VariableRow, VariableStore

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_NAME = 255
LARGEST_VALUE = 64 * 1024
OURS = "WINDLASS_"


class BadVariable(WindlassError):  # noqa: N818 - describes the variable
    pass


class NoSuchVariable(WindlassError):  # noqa: N818 - describes the variable
    pass


@dataclass(frozen=True, slots=True)
class GivenVariable:
    """A variable to set."""

    name: str
    value: Secret
    secret: bool = True


@dataclass(frozen=True, slots=True)
class Variable:
    """`value` is None for a secret variable, which is never shown. `updated_by` is the name of a user."""

    name: str
    value: str | None
    secret: bool
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
        """Sets all of these, or none, and keeps the others. Raises BadVariable and TooManyVariables."""
        if len({one.name for one in given}) < len(given):
            raise BadVariable("A variable is given twice.", "Give each name once.")
        new = [self._sealed(deployment.id, one) for one in given]
        named = [{"name": one.name, "secret": one.secret} for one in given]
        await self._store.set(deployment.id, new, Change(by, "variable.set", deployment.slug, {"variables": named}))

    async def unset(self, deployment: Deployment, name: str, by: Actor) -> None:
        """Raises NoSuchVariable."""
        change = Change(by, "variable.unset", deployment.slug, {"name": name})
        if not await self._store.unset(deployment.id, name, change):
            raise NoSuchVariable(
                f"The deployment {deployment.slug} has no variable {name[:LONGEST_NAME]!r}.",
                f"`windlass env list {deployment.slug}` lists its variables.",
            )

    def _sealed(self, deployment: UUID, given: GivenVariable) -> SealedVariable:
        check(given)
        return SealedVariable(
            given.name, seal_value(self._key_ring, deployment, given.name, given.value.reveal()), given.secret
        )

    def _shown(self, deployment: UUID, row: VariableRow) -> Variable:
        value = None if row.secret else open_value(self._key_ring, deployment, row.name, row.value)
        return Variable(row.name, value, row.secret, row.updated_at, row.updated_by)


def check(given: GivenVariable) -> None:
    """Raises BadVariable for a name or value that no environment can hold. The message never quotes the value."""
    name, value = given.name, given.value.reveal()
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise BadVariable(
            f"{name[:LONGEST_NAME]!r} is no name of a variable.",
            f"A name has letters, digits and underscores, does not begin with a digit, and has at most {LONGEST_NAME} "
            "characters.",
        )
    if name.startswith(OURS):
        raise BadVariable(f"{name} begins with {OURS}.", "Choose another name: crews get no such variables.")
    if "\0" in value:
        raise BadVariable(f"The value of {name} contains a NUL character, which no variable can hold.", "Remove it.")
    if len(value.encode("utf-8", "surrogatepass")) > LARGEST_VALUE:
        raise BadVariable(
            f"The value of {name} is larger than {LARGEST_VALUE >> 10} KB.", "Put it where the crew can read it."
        )


def seal_value(key_ring: KeyRing, deployment: UUID, name: str, value: str) -> str:
    return key_ring.seal(value, Sealed.VARIABLE.of(f"{deployment}/{name}"))


def open_value(key_ring: KeyRing, deployment: UUID, name: str, value: str) -> str:
    """Raises UnknownKey and Damaged."""
    return key_ring.open(value, Sealed.VARIABLE.of(f"{deployment}/{name}"))


def open_values(key_ring: KeyRing, deployment: UUID, sealed: Iterable[SealedVariable]) -> dict[str, str]:
    """Returns the values by name. Raises UnknownKey and Damaged."""
    return {one.name: open_value(key_ring, deployment, one.name, one.value) for one in sealed}

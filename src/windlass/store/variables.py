"""The variables of deployments. All values are stored encrypted."""

# See docs/decisions/secrets.md#the-store-calls-back-with-the-locked-rows

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.errors import WindlassError
from windlass.rights import Role
from windlass.store.audit import Change, record
from windlass.store.credentials import CredentialRow, credentials_named, share_credentials
from windlass.store.database import Connection, Store, fetch, queries
from windlass.store.sealed_variables import SealedVariable, sealed_variables

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID


SQL = queries("variables")
MOST_VARIABLES = 500
"""Variables of one deployment."""
MOST_BYTES = 1 << 20
"""Bytes that the encrypted values of one deployment have together. Each claim of a kickoff reads all of them."""


class TooManyVariables(WindlassError):  # noqa: N818 - describes the variables
    pass


@dataclass(frozen=True, slots=True)
class VariableRow:
    """`value` is encrypted. `updated_by` is the name of a user.

    `credential` is the name of its credential, None for the default one of `provider`. A direct value has neither, and
    no `secret_name`. `method` is the method of the credential that is used now, None if there is none. `read_at` is the
    time at which the value was read from a secret manager.
    """

    name: str
    value: str | None
    secret: bool
    provider: str | None
    credential: str | None
    method: str | None
    secret_name: str | None
    read_at: datetime | None
    updated_at: datetime
    updated_by: str | None


@dataclass(frozen=True, slots=True)
class ReadValues:
    """Variables with the encrypted values that were read from secret managers, and when the reads began.

    Their sources are those from which the values were read.
    """

    at: datetime
    variables: tuple[SealedVariable, ...]


Decide = Callable[[Mapping[str, SealedVariable], Sequence[CredentialRow]], Sequence[SealedVariable]]
"""Returns the variables to set, from those of the same names that exist, and the credentials that they may use."""


class VariableStore(Store):
    async def of_deployment(self, deployment: UUID) -> list[VariableRow]:
        """Returns the variables in the order of their names."""
        rows = await self._database.rows(SQL["of_deployment"], {"deployment": deployment})
        return [VariableRow(**row) for row in rows]

    async def sealed(self, deployment: UUID) -> tuple[SealedVariable, ...]:
        """Returns the variables as a kickoff that is claimed now gets them."""
        return sealed_variables(await self._database.rows(SQL["sealed"], {"deployment": deployment}))

    async def set(
        self,
        deployment: UUID,
        names: Sequence[str],
        decide: Decide,
        change: Change,
        *,
        credentials: Sequence[str] = (),
        providers: Sequence[str] = (),
    ) -> None:
        """Sets the variables `names`, or none, as `decide` returns them, and keeps the others.

        `decide` gets the credentials with the names `credentials`, and the default ones of `providers`. Raises what it
        raises, and TooManyVariables. Of two calls at once that set the same variable, the value of the later commit
        stays.
        """
        async with self._database.transaction() as connection:
            usable = await _usable_credentials(connection, credentials, providers)
            await connection.execute(SQL["share_deployment"], {"deployment": deployment})
            before = await fetch(connection, SQL["before"], {"deployment": deployment, "names": sorted(names)})
            new = decide({one.name: one for one in sealed_variables(before)}, usable)
            values = {**_columns(deployment, new), "by": change.by.user_id, "set_as": change.by.role or Role.VIEWER}
            await connection.execute(SQL["set"], values)
            await _check_load(connection, deployment)
            await record(connection, change)

    async def unset(self, deployment: UUID, name: str, change: Change) -> bool:
        """Returns False for a variable that is not set."""
        async with self._database.transaction() as connection:
            if not await fetch(connection, SQL["unset"], {"deployment": deployment, "name": name}):
                return False
            await record(connection, change)
        return True

    async def store_read(self, deployment: UUID, read: ReadValues) -> None:
        """Stores values that were read from secret managers, as `store_read` does, in a transaction of its own."""
        async with self._database.transaction() as connection:
            await store_read(connection, deployment, read)


async def store_read(connection: Connection, deployment: UUID, read: ReadValues) -> None:
    """Stores values that were read from secret managers. Skips variables whose source has changed since.

    Raises TooManyVariables when the values of the deployment become too large together.
    """
    if read.variables:
        await connection.execute(SQL["store_read"], {**_columns(deployment, read.variables), "at": read.at})
        await _check_load(connection, deployment)


async def _usable_credentials(
    connection: Connection, names: Sequence[str], providers: Sequence[str]
) -> list[CredentialRow]:
    if not (names or providers):
        return []
    await share_credentials(connection)
    return await credentials_named(connection, names, providers)


async def _check_load(connection: Connection, deployment: UUID) -> None:
    (load,) = await fetch(connection, SQL["load"], {"deployment": deployment})
    if load["variables"] > MOST_VARIABLES or load["bytes"] > MOST_BYTES:
        raise TooManyVariables(
            f"A deployment can have {MOST_VARIABLES} variables, and {MOST_BYTES >> 10} KB of encrypted values.",
            "Unset some, or put large values where the crew can read them.",
        )


def _columns(deployment: UUID, variables: Iterable[SealedVariable]) -> dict[str, Any]:
    """Returns the variables as one list for each column, in the order in which their rows are locked."""
    ordered = sorted(variables, key=lambda one: one.name)
    return {
        "deployment": deployment,
        "names": [one.name for one in ordered],
        "values": [one.value for one in ordered],
        "secrets": [one.secret for one in ordered],
        "providers": [one.provider for one in ordered],
        "credentials": [one.credential_id for one in ordered],
        "secret_names": [one.secret_name for one in ordered],
    }

"""The credentials with which the server reads secrets from secret managers. Their configurations are stored encrypted.

Changes of credentials are made one after the other, and not while a variable is set that uses one.
"""

# See docs/decisions/secrets.md#credentials-have-one-lock

from __future__ import annotations

from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from windlass.errors import WindlassError
from windlass.rights import Role
from windlass.store.audit import Change, record
from windlass.store.database import Connection, Store, fetch, filled, queries
from windlass.store.managing import NoSuchDeployment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from windlass.store.database import Row, Statement
    from windlass.store.sealed_variables import SealedVariable

SQL = queries("credentials")
MOST_CREDENTIALS = 500
MOST_NAMED = 10
"""Variables that an error names."""


def _rows(which: sql.SQL) -> Statement:
    return filled(SQL["rows"], which=which, limit=sql.Literal(MOST_CREDENTIALS))


USABLE, NAMED, USED = _rows(SQL["usable"]), _rows(SQL["named"]), _rows(SQL["used"])


class CredentialExists(WindlassError):  # noqa: N818 - describes the credential
    def __init__(self, name: str) -> None:
        super().__init__(f"There is a credential {name!r} already.", "Change it, or choose another name.")


class CredentialInUse(WindlassError):  # noqa: N818 - describes the credential
    """`variables` are some of the variables that use it, as `deployment/NAME`."""

    def __init__(self, message: str, hint: str, variables: Sequence[str]) -> None:
        super().__init__(message, hint)
        self.variables = list(variables)


class TooManyCredentials(WindlassError):  # noqa: N818 - describes the credentials
    pass


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A credential to store. `configuration` is encrypted JSON.

    With `at_deploy`, values are read at deploy and stored. Otherwise they are read at each kickoff. `deployments` are
    the slugs of those that may use it, `roles` those of people who may use it in all deployments.
    """

    id: UUID
    name: str
    provider: str
    method: str
    configuration: str
    is_default: bool
    at_deploy: bool
    roles: Sequence[str] = ()
    deployments: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CredentialRow:
    """`configuration` is encrypted JSON. `is_default` marks the default credential of its provider.

    `created_by` and `updated_by` are names of users, `deployments` slugs of those that exist.
    """

    id: UUID
    name: str
    provider: str
    method: str
    configuration: str
    is_default: bool
    roles: Sequence[str]
    deployment_ids: Sequence[UUID]
    deployments: Sequence[str]
    created_at: datetime
    created_by: str | None
    updated_at: datetime
    updated_by: str | None

    def permits(self, deployment: UUID, role: Role) -> bool:
        """Returns whether a variable of the deployment that a person with this role has set may use it."""
        return deployment in self.deployment_ids or role in roles_that_use(self.roles, self.deployment_ids)


def roles_that_use(roles: Collection[str], deployments: Collection[UUID]) -> list[Role]:
    """Returns the roles of people who may use a credential in each deployment. Without any permission, owners may."""
    listed = roles or ([] if deployments else [Role.OWNER])
    return [role for role in Role if any(role.includes(Role(one)) for one in listed)]


Alter = Callable[[CredentialRow], NewCredential]
"""Returns the credential as it shall be, from the stored one."""


class CredentialStore(Store):
    async def all(self, *, sees: UUID | None = None) -> list[CredentialRow]:
        """Returns the credentials in the order of their names: all, or those that the user `sees` can use."""
        return [CredentialRow(**row) for row in await self._database.rows(USABLE, {"sees": sees})]

    async def get(self, name: str, *, sees: UUID | None = None) -> CredentialRow | None:
        return next((row for row in await self.all(sees=sees) if row.name == name), None)

    async def uses(self) -> dict[UUID, int]:
        """Returns how many variables use each credential, also as the default one. Those without a use are missing."""
        return {row["id"]: row["variables"] for row in await self._database.rows(SQL["uses"])}

    async def set_as(self, deployment: UUID) -> dict[str, Role]:
        """Returns the roles with which people have set the variables of a deployment, by the names of variables."""
        rows = await self._database.rows(SQL["set_as"], {"deployment": deployment})
        return {row["name"]: Role(row["set_as"]) for row in rows}

    async def used_by(self, row: CredentialRow, *, limit: int, sees: UUID | None = None) -> list[str]:
        """Returns variables that use the credential, also as the default one, as `deployment/NAME`. With `sees`, only
        those of deployments that this user sees.
        """
        provider = row.provider if row.is_default else None
        values = {"id": row.id, "provider": provider, "limit": limit, "sees": sees}
        return [one["variable"] for one in await self._database.rows(SQL["variables_of"], values)]

    async def of_variables(self, variables: Iterable[SealedVariable]) -> list[CredentialRow]:
        """Returns the credentials of these variables: those with their `credential_id`, and the default ones of their
        `provider`. One that does not exist is missing.
        """
        given = list(variables)
        ids = {one.credential_id for one in given if one.credential_id}
        providers = {one.provider for one in given if one.provider}
        if not (ids or providers):
            return []
        values = {"ids": list(ids), "providers": list(providers)}
        return [CredentialRow(**row) for row in await self._database.rows(USED, values)]

    async def add(self, new: NewCredential, change: Change) -> None:
        """Raises CredentialExists, TooManyCredentials, and NoSuchDeployment."""
        async with self._locked() as connection:
            (found,) = await fetch(connection, SQL["count"])
            if found["count"] >= MOST_CREDENTIALS:
                raise TooManyCredentials(f"A server can have {MOST_CREDENTIALS} credentials.", "Remove some.")
            await _check_name_is_free(connection, new.name)
            await _check_deployments(connection, new)
            await _make_default(connection, new)
            stored = await fetch(connection, SQL["add"], {**_columns(new), "by": change.by.user_id})
            await _forget_values(connection, new, stored[0])
            await record(connection, change)

    async def change(self, name: str, alter: Alter, change: Change) -> bool:
        """Stores what `alter` returns for the credential. Its id and its provider stay. Returns False for no such
        credential.

        Stored values of variables that may not use it any more are removed.

        Raises what `alter` raises, CredentialExists for the name of another credential, NoSuchDeployment, and
        CredentialInUse when variables use the default credential of the provider, and there would be none.
        """
        async with self._locked() as connection:
            rows = await credentials_named(connection, [name])
            if not rows:
                return False
            (before,) = rows
            new = alter(before)
            if new.name != before.name:
                await _check_name_is_free(connection, new.name)
            if before.is_default and not new.is_default:
                await _check_unused(connection, before, id_=None)
            await _check_deployments(connection, new)
            await _make_default(connection, new)
            stored = await fetch(connection, SQL["change"], {**_columns(new), "by": change.by.user_id})
            await _forget_values(connection, new, stored[0])
            await record(connection, change)
        return True

    async def remove(self, name: str, change: Change) -> bool:
        """Returns False for no such credential. Raises CredentialInUse while variables use it."""
        async with self._locked() as connection:
            rows = await credentials_named(connection, [name])
            if not rows:
                return False
            await _check_unused(connection, rows[0], id_=rows[0].id)
            await connection.execute(SQL["remove"], {"id": rows[0].id})
            await record(connection, change)
        return True

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[Connection]:
        """Provides a transaction during which no other one changes a credential or sets a variable that uses one."""
        async with self._database.transaction() as connection:
            await connection.execute(SQL["lock"])
            yield connection


async def share_credentials(connection: Connection) -> None:
    """Prevents changes of credentials until the end of the transaction."""
    await connection.execute(SQL["share"])


async def credentials_named(
    connection: Connection, names: Sequence[str], default_of: Sequence[str] = ()
) -> list[CredentialRow]:
    """Returns the credentials with these names, and the default ones of the providers `default_of`."""
    rows = await fetch(connection, NAMED, {"names": list(names), "providers": list(default_of)})
    return [CredentialRow(**row) for row in rows]


async def _check_name_is_free(connection: Connection, name: str) -> None:
    if await credentials_named(connection, [name]):
        raise CredentialExists(name)


async def _check_unused(connection: Connection, row: CredentialRow, *, id_: UUID | None) -> None:
    """Raises CredentialInUse if variables use the credential `id_`, or it is the default one and they use that."""
    provider = row.provider if row.is_default else None
    values = {"id": id_, "provider": provider, "limit": MOST_NAMED + 1, "sees": None}
    found = [one["variable"] for one in await fetch(connection, SQL["variables_of"], values)]
    if not found:
        return
    names = ", ".join(found[:MOST_NAMED]) + (" and more" if len(found) > MOST_NAMED else "")
    what = f"the default credential of {row.provider}" if id_ is None else f"the credential {row.name}"
    raise CredentialInUse(
        f"Variables use {what}: {names}.", "Give them another source, or make another credential the default.", found
    )


async def _make_default(connection: Connection, new: NewCredential) -> None:
    """Ends that another credential of the provider is the default one, if this one shall be."""
    if new.is_default:
        await connection.execute(SQL["end_default"], {"id": new.id, "provider": new.provider})


async def _check_deployments(connection: Connection, new: NewCredential) -> None:
    """Raises NoSuchDeployment."""
    found = {row["slug"] for row in await fetch(connection, SQL["deployments"], {"slugs": list(new.deployments)})}
    if missing := [slug for slug in new.deployments if slug not in found]:
        raise NoSuchDeployment(missing[0])


async def _forget_values(connection: Connection, new: NewCredential, stored: Row) -> None:
    """Removes the stored values of variables that are now read at each kickoff, or that may not use the credential."""
    values = {
        "id": new.id,
        "provider": new.provider if new.is_default else None,
        "kept_for": stored["deployment_ids"] if new.at_deploy else [],
        "kept_as": roles_that_use(stored["roles"], stored["deployment_ids"]) if new.at_deploy else [],
    }
    await connection.execute(SQL["forget_values"], values)


def _columns(new: NewCredential) -> dict[str, Any]:
    lists = {"roles": list(new.roles), "deployments": list(new.deployments)}
    return {**{name: getattr(new, name) for name in NewCredential.__slots__}, **lists}

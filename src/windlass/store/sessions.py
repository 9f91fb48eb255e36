"""Sessions of the dashboard, the links that sign a person in once, and the hashes of passwords."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windlass.kickoffs.ids import new_id
from windlass.rights import Role
from windlass.store.audit import Change, record
from windlass.store.database import Store, fetch, queries

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

    from windlass.store.audit import Actor
    from windlass.store.database import Database

SQL = queries("sessions")
OIDC = "oidc"
"""The method of a session that began with OpenID Connect."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session, with the name and role of its user. `is_due` is whether the time of its last use is to be written."""

    id: UUID
    digest: bytes = field(repr=False)
    user_id: UUID
    user: str
    role: Role
    method: str
    has_password: bool
    is_due: bool = False


@dataclass(frozen=True, slots=True)
class SignIn:
    """How a session began. `method` is `link`, `password` or `oidc`; `address` and `agent` are those of the client.

    `password_hash` is that of the password, for the method `password`.
    """

    user_id: UUID
    method: str
    address: str | None
    agent: str | None
    password_hash: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SessionItem:
    """A session in the list of a user's sessions."""

    id: UUID
    method: str
    address: str | None
    agent: str | None
    created_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A session ends when it was not used for `idle`, and at the latest after `longest`."""

    idle: timedelta
    longest: timedelta
    of_provider: timedelta | None = None
    """The longest time of a session that began with OpenID Connect, if it is shorter."""


class SessionStore(Store):
    def __init__(self, database: Database, lifetime: Lifetime) -> None:
        super().__init__(database)
        of_provider = min(lifetime.longest, lifetime.of_provider or lifetime.longest)
        self._lifetime = {"idle": lifetime.idle, "longest": lifetime.longest, "of_provider": of_provider}

    async def add(self, digest: bytes, given: SignIn, by: Actor, *, most: int) -> bool:
        """Adds a session, with its entry in the audit log. Ends the oldest of the user's sessions beyond `most`.

        Returns False for a user who may not use the dashboard, or has another password by now.
        """
        values = {
            "id": new_id(),
            "digest": digest,
            "user": given.user_id,
            "method": given.method,
            "address": given.address,
            "agent": given.agent,
            "hash": given.password_hash,
        }
        async with self._database.transaction() as connection:
            if not await fetch(connection, SQL["add"], values):
                return False
            if given.method == OIDC:
                await connection.execute(SQL["note_sign_in"], {"user": given.user_id})
            await connection.execute(SQL["end_oldest"], {"user": given.user_id, "most": most})
            await record(connection, Change(by, "session.begin", by.user, {"method": given.method}))
        return True

    async def by_digest(self, digest: bytes) -> SessionRow | None:
        """Returns the session, None for one that is unknown or too old, or whose user may not use the dashboard."""
        row = await self._database.row(SQL["by_digest"], {"digest": digest, **self._lifetime}, soon=True)
        return SessionRow(**{**row, "role": Role(row["role"])}) if row else None

    async def note_use(self, session: UUID) -> None:
        await self._database.execute(SQL["note_use"], {"id": session})

    async def of_user(self, user: UUID, *, limit: int) -> list[SessionItem]:
        """Returns the sessions of the user, the last used one first."""
        rows = await self._database.rows(SQL["of_user"], {"user": user, "limit": limit, **self._lifetime})
        return [SessionItem(**row) for row in rows]

    async def end(self, session: UUID, user: UUID) -> None:
        await self._database.execute(SQL["end"], {"id": session, "user": user})

    async def end_others(self, user: UUID, kept: UUID | None, by: Actor) -> int:
        """Ends the user's sessions but `kept`, and the user's links. Returns how many sessions ended."""
        async with self._database.transaction() as connection:
            ended = await fetch(connection, SQL["end_others"], {"user": user, "kept": kept})
            await connection.execute(SQL["end_links"], {"user": user})
            await record(connection, Change(by, "session.end_all", by.user, {"sessions": len(ended)}))
        return len(ended)

    async def end_expired(self) -> None:
        """Deletes the sessions and links that can't be used any more."""
        await self._database.execute(SQL["end_expired"], self._lifetime)
        await self._database.execute(SQL["end_expired_links"])

    async def add_link(self, digest: bytes, user: UUID, valid: timedelta, change: Change) -> bool:
        """Returns False for a user who may not use the dashboard."""
        async with self._database.transaction() as connection:
            if not await fetch(connection, SQL["add_link"], {"digest": digest, "user": user, "valid": valid}):
                return False
            await record(connection, change)
        return True

    async def use_link(self, digest: bytes) -> UUID | None:
        """Returns the user of the link, and deletes it. Of two uses at once, one gets the user."""
        row = await self._database.row(SQL["use_link"], {"digest": digest})
        return row["user_id"] if row else None

    async def name_of(self, user: UUID) -> str | None:
        """Returns the name of a user who may sign in."""
        row = await self._database.row(SQL["may_sign_in"], {"user": user})
        return row["name"] if row else None

    async def password(self, name: str) -> tuple[UUID, str | None] | None:
        """Returns id and password hash of a user who may sign in."""
        row = await self._database.row(SQL["password"], {"name": name})
        return (row["id"], row["password_hash"]) if row else None

    async def set_password(self, user: UUID, hashed: str | None, change: Change, *, kept: UUID | None) -> None:
        """Replaces the password, and ends the user's links and the user's sessions but `kept`."""
        async with self._database.transaction() as connection:
            if await fetch(connection, SQL["set_password"], {"user": user, "hash": hashed}):
                await connection.execute(SQL["end_others"], {"user": user, "kept": kept})
                await connection.execute(SQL["end_links"], {"user": user})
                await record(connection, change)

    async def update_hash(self, user: UUID, old: str, new: str) -> bool:
        """Stores the same password as a hash with newer parameters. Returns False if it was changed meanwhile."""
        return bool(await self._database.rows(SQL["update_hash"], {"user": user, "old": old, "new": new}))

    async def user_of_identity(self, issuer: str, subject: str) -> str | None:
        """Returns the name of the user who signs in as this person of the provider."""
        row = await self._database.row(SQL["by_identity"], {"issuer": issuer, "subject": subject})
        return row["name"] if row else None

    async def link_identity(self, issuer: str, subject: str, name: str, by: Actor) -> bool:
        """Lets the person of the provider sign in as the user. Returns False if another person of it does already."""
        values = {"issuer": issuer, "subject": subject, "name": name}
        async with self._database.transaction() as connection:
            if not await fetch(connection, SQL["link_identity"], values):
                return False
            await record(connection, Change(by, "user.link", name, {"issuer": issuer}))
        return True

    async def roles_with_password(self) -> set[str]:
        """Returns the roles of which a user can sign in with a password."""
        return {row["role"] for row in await self._database.rows(SQL["roles_with_password"])}

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from windlass.kickoffs.ids import new_id
from windlass.kickoffs.states import SCOPES_OF_KIND, Scope
from windlass.store.database import Database, Row, fetch, queries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

SQL = queries("tokens")
MEMBERS = ("id", "kind", "deployment_id", "user_id", "profile", "expires_at", "scopes")


@dataclass(frozen=True, slots=True)
class TokenRow:
    """The stored data of a token. It alone determines the token's rights; the text of the token does not.

    None means every deployment for `deployment_id`, the deployment's profile for `profile`, and all scopes of the
    token's kind for `scopes`.
    """

    id: UUID
    kind: str
    deployment_id: UUID | None
    user_id: UUID | None
    profile: str | None
    expires_at: datetime | None
    scopes: tuple[Scope, ...] | None = None

    def allows(self, scope: Scope) -> bool:
        return scope in (SCOPES_OF_KIND[self.kind] if self.scopes is None else self.scopes)

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to store. `digest` is its HMAC-SHA256. `shown_copy` is the encrypted token, if it must be shown again."""

    row: TokenRow
    digest: bytes
    last_four: str
    shown_copy: str | None = None


@dataclass(frozen=True, slots=True)
class UserRow:
    id: UUID
    name: str
    created_at: datetime
    disabled_at: datetime | None


class TokenStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, token: NewToken) -> bool:
        """Adds a token. Returns False, and adds none, when the crew already has a shown token of this kind."""
        return bool(await self._database.rows(SQL["add"], _values(token)))

    async def replace(self, old: UUID, new: Callable[[TokenRow, bool], NewToken]) -> TokenRow | None:
        """Revokes a token and adds the token that `new` makes from the old row and whether it was a shown token.

        Both happen in one transaction. Returns None when `old` is unknown or already revoked.
        """
        async with self._database.transaction() as connection:
            rows = await fetch(connection, SQL["revoke"], {"id": old})
            if not rows:
                return None
            token = new(*_revoked(rows[0]))
            await connection.execute(SQL["add"], _values(token))
        return token.row

    async def by_digests(self, digests: Sequence[bytes]) -> dict[bytes, TokenRow]:
        """Returns the tokens that may be used now, by digest."""
        rows = await self._database.rows(SQL["by_digests"], {"digests": list(digests)}, soon=True)
        return {row.pop("digest"): _token(row) for row in rows}

    async def all(self, *, revoked_too: bool = False, limit: int = 1000) -> list[Row]:
        return await self._database.rows(SQL["list"], {"all": revoked_too, "limit": limit})

    async def shown(self, deployment: UUID) -> list[Row]:
        """Returns id, kind, user and encrypted copy of the tokens that a crew's page shows."""
        return await self._database.rows(SQL["shown"], {"deployment": deployment})

    async def named(self, name: str) -> list[UUID]:
        """Returns tokens with this id or these last four characters that are not revoked.

        Returns two at most: two results mean that the name is ambiguous.
        """
        return [row["id"] for row in await self._database.rows(SQL["named"], {"name": name})]

    async def revoke(self, token: UUID) -> TokenRow | None:
        """Revokes a token, and notifies every server. Returns None when it is unknown or already revoked."""
        row = await self._database.row(SQL["revoke"], {"id": token})
        return _revoked(row)[0] if row else None

    async def note_use(self, tokens: list[UUID], at: datetime) -> None:
        await self._database.execute(SQL["note_use"], {"ids": tokens, "at": at})

    async def add_user(self, name: str) -> UUID | None:
        """Adds a user. Returns None when the name is taken."""
        row = await self._database.row(SQL["add_user"], {"id": new_id(), "name": name})
        return row["id"] if row else None

    async def user(self, name: str) -> UserRow | None:
        row = await self._database.row(SQL["user"], {"name": name})
        return UserRow(**row) if row else None

    async def users(self, *, limit: int = 1000) -> list[UserRow]:
        """Returns the users in the order of their names."""
        return [UserRow(**row) for row in await self._database.rows(SQL["users"], {"limit": limit})]

    async def disable_user(self, user: UUID) -> None:
        """Disables the user. No server accepts the user's tokens any more: PostgreSQL notifies every server."""
        await self._database.execute(SQL["disable_user"], {"id": user})

    async def enable_user(self, user: UUID) -> None:
        await self._database.execute(SQL["enable_user"], {"id": user})

    async def set_once(self, name: str, value: str) -> str:
        """Sets the setting if it has no value, and returns its value."""
        await self._database.execute(SQL["set_once"], {"name": name, "value": value})
        row = await self._database.row(SQL["setting"], {"name": name})
        return str(row["value"]) if row else value


def _values(token: NewToken) -> dict[str, Any]:
    row = token.row
    return {
        "id": row.id,
        "kind": row.kind,
        "deployment": row.deployment_id,
        "user": row.user_id,
        "digest": token.digest,
        "last_four": token.last_four,
        "profile": row.profile,
        "shown_copy": token.shown_copy,
        "expires_at": row.expires_at,
        "scopes": None if row.scopes is None else [str(scope) for scope in row.scopes],
    }


def _revoked(row: Row) -> tuple[TokenRow, bool]:
    return _token({name: row[name] for name in MEMBERS}), row["shown"]


def _token(row: Row) -> TokenRow:
    scopes = None if row["scopes"] is None else tuple(map(Scope, row["scopes"]))
    return TokenRow(**{**row, "scopes": scopes})

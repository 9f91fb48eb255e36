from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from windlass.kickoffs.ids import new_id
from windlass.store.database import Database, Row, fetch
from windlass.store.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

SQL = queries("tokens")


@dataclass(frozen=True, slots=True)
class TokenRow:
    """What a token may do comes from here, never from its text. `deployment_id` None: every deployment; `profile` None:
    the deployment's.
    """

    id: UUID
    kind: str
    deployment_id: UUID | None
    user_id: UUID | None
    profile: str | None
    expires_at: datetime | None

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class NewToken:
    """`digest` is an HMAC-SHA256 of the token, `shown_copy` the encrypted token where it is to be shown again."""

    row: TokenRow
    digest: bytes
    last_four: str
    shown_copy: str | None = None


class TokenStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, token: NewToken) -> bool:
        """False for a token that is to be shown when the crew shows one of that kind already."""
        return bool(await self._database.rows(SQL["add"], _values(token)))

    async def replace(self, old: UUID, new: Callable[[TokenRow, bool], NewToken]) -> TokenRow | None:
        """Revokes a token and adds the one that `new` makes of it and of whether it was a shown one, or neither. None
        when there is no live one.
        """
        async with self._database.transaction() as connection:
            rows = await fetch(connection, SQL["revoke"], {"id": old})
            if not rows:
                return None
            token = new(*_revoked(rows[0]))
            await connection.execute(SQL["add"], _values(token))
        return token.row

    async def by_digest(self, digest: bytes) -> TokenRow | None:
        """A token that may be used now."""
        row = await self._database.row(SQL["by_digest"], {"digest": digest}, soon=True)
        return TokenRow(**row) if row else None

    async def all(self, *, revoked_too: bool = False, limit: int = 1000) -> list[Row]:
        return await self._database.rows(SQL["list"], {"all": revoked_too, "limit": limit})

    async def shown(self, deployment: UUID) -> list[Row]:
        """id, kind, user and encrypted copy of the tokens that a crew's page shows."""
        return await self._database.rows(SQL["shown"], {"deployment": deployment})

    async def named(self, name: str) -> list[UUID]:
        """Live tokens with this id or these last four characters; two at most, to tell that a name is not enough."""
        return [row["id"] for row in await self._database.rows(SQL["named"], {"name": name})]

    async def revoke(self, token: UUID) -> TokenRow | None:
        """None when there is no live one. Every server hears of it."""
        row = await self._database.row(SQL["revoke"], {"id": token})
        return _revoked(row)[0] if row else None

    async def note_use(self, tokens: list[UUID], at: datetime) -> None:
        await self._database.execute(SQL["note_use"], {"ids": tokens, "at": at})

    async def add_user(self, name: str) -> UUID | None:
        """None when there is a user of that name."""
        row = await self._database.row(SQL["add_user"], {"id": new_id(), "name": name})
        return row["id"] if row else None

    async def user(self, name: str) -> UUID | None:
        row = await self._database.row(SQL["user"], {"name": name})
        return row["id"] if row else None

    async def set_once(self, name: str, value: str) -> str:
        """The setting's value: this one when it had none, else the one it had."""
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
    }


def _revoked(row: Row) -> tuple[TokenRow, bool]:
    members = ("id", "kind", "deployment_id", "user_id", "profile", "expires_at")
    return TokenRow(**{name: row[name] for name in members}), row["shown"]

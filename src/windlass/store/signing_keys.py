"""The signing keys of the OIDC issuer, encrypted, and the id of the organization. Each change is notified."""

# See docs/decisions/secrets.md#the-first-signing-key-is-made-when-it-is-needed

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

from windlass.errors import WindlassError
from windlass.store.audit import Actor, Change, record
from windlass.store.database import Connection, Store, fetch, queries

if TYPE_CHECKING:
    from datetime import datetime


SQL = queries("signing_keys")
BEFORE_SIGNING = timedelta(hours=24)
"""How long a new key is published before it signs. Verifiers cache the keys."""
AFTER_SIGNING = timedelta(hours=24)
"""How long a key is published after its last token was signed: longer than that token is valid."""


class KeyWaits(WindlassError):  # noqa: N818 - describes the key
    """Reports that the newest key does not sign yet."""

    def __init__(self, signs_from: datetime) -> None:
        super().__init__(
            f"A new key is published already, and signs from {signs_from.astimezone(UTC):%Y-%m-%d %H:%M} UTC on.",
            "Let it sign at once with: windlass admin identity rotate --now",
        )


@dataclass(frozen=True, slots=True)
class SigningKeyRow:
    """`key` is encrypted."""

    id: str
    key: str
    created_at: datetime
    signs_from: datetime


class SigningKeyStore(Store):
    async def organization_id(self) -> str:
        await self._database.execute(SQL["make_organization_id"])  # a migration has made it, unless tables were emptied
        (row,) = await self._database.rows(SQL["organization_id"])
        return str(row["value"])

    async def all(self) -> list[SigningKeyRow]:
        """Returns the keys in the order in which they sign."""
        return [SigningKeyRow(**row) for row in await self._database.rows(SQL["all"])]

    async def add_first(self, key_id: str, key: str) -> None:
        """Adds a key that signs at once, unless there is a key. Of several servers that do so at once, one succeeds."""
        async with self._database.transaction() as connection:
            await connection.execute(SQL["lock"])
            if not await fetch(connection, SQL["all"]):
                await connection.execute(SQL["add"], {"id": key_id, "key": key, "wait": timedelta()})

    async def rotate(self, key_id: str, key: str, *, now: bool, withdraw: bool, by: Actor) -> None:
        """Adds a key that signs after BEFORE_SIGNING, or `now`, and removes the keys that no verifier needs.

        With `now`, a key that waits signs at once instead. With `withdraw`, removes all other keys: tokens that they
        signed are refused. Raises KeyWaits.
        """
        async with self._database.transaction() as connection:
            await connection.execute(SQL["lock"])
            removed = [
                row["id"] for row in await fetch(connection, SQL["remove_superseded"], {"needed": AFTER_SIGNING})
            ]
            added = await self._next(connection, key_id, key, now=now, new=withdraw)
            if withdraw:
                removed += [row["id"] for row in await fetch(connection, SQL["remove_others"], {"id": added["id"]})]
            details = {"signs_from": added["signs_from"].isoformat(), "removed": removed}
            await record(connection, Change(by, "identity.rotate", added["id"], details))

    async def _next(self, connection: Connection, key_id: str, key: str, *, now: bool, new: bool) -> dict[str, Any]:
        waiting = [] if new else await fetch(connection, SQL["waiting"])
        if waiting and not now:
            raise KeyWaits(waiting[0]["signs_from"])
        if waiting:
            (row,) = await fetch(connection, SQL["sign_now"], {"id": waiting[0]["id"]})
        else:
            wait = timedelta() if now else BEFORE_SIGNING
            (row,) = await fetch(connection, SQL["add"], {"id": key_id, "key": key, "wait": wait})
        return row

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from windlass import log
from windlass.errors import WindlassError
from windlass.kickoffs.ids import new_id, parse_id
from windlass.store.tokens import NewToken, TokenRow, TokenStore
from windlass.vault.secret import Secret
from windlass.vault.token_form import TokenKind, digest, last_four, new_token

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from windlass.store.deployments import Deployment
    from windlass.vault.key_ring import KeyRing

OWNER = "owner"
"""The user whose token a crew shows: whoever set the server up."""

logger = log.logger(__name__)


class NoSuchToken(WindlassError):  # noqa: N818 - said of the token
    pass


class NoSuchUser(WindlassError):  # noqa: N818 - said of the user
    pass


@dataclass(frozen=True, slots=True)
class ShownTokens:
    organization: Secret
    user: Secret
    user_name: str


class Tokens:
    """Makes, shows, rotates and revokes API tokens; nothing but a digest of a token is kept, and an encrypted copy of a
    shown one.
    """

    def __init__(self, store: TokenStore, key_ring: KeyRing, pepper: bytes) -> None:
        self._store = store
        self._key_ring = key_ring
        self._pepper = pepper

    @classmethod
    async def open(cls, store: TokenStore, key_ring: KeyRing) -> Tokens:
        """The pepper is made once, and kept in the database, encrypted: a new master key leaves all tokens valid."""
        fresh = key_ring.seal(base64.b64encode(os.urandom(32)).decode(), "settings.token_pepper")
        sealed = await store.set_once("token_pepper", fresh)
        return cls(store, key_ring, base64.b64decode(key_ring.open(sealed, "settings.token_pepper")))

    def digest(self, token: str) -> bytes:
        return digest(token, self._pepper)

    async def add_user(self, name: str) -> UUID:
        added = await self._store.add_user(name)
        if added is None:
            raise WindlassError(f"There is a user {name!r} already.", "`windlass tokens list` shows the tokens.")
        return added

    async def user(self, name: str) -> UUID:
        found = await self._store.user(name)
        if found is None:
            raise NoSuchUser(f"There is no user {name!r}.", f"Add one with: windlass users add {name}")
        return found

    async def create(
        self,
        deployment: UUID | None,
        *,
        user: UUID | None = None,
        profile: str | None = None,
        expires_at: datetime | None = None,
    ) -> Secret:
        """A user token when `user` is given, else an organization's; `deployment` None: for every deployment."""
        kind = TokenKind.USER if user else TokenKind.ORGANIZATION
        return await self._add(TokenRow(new_id(), kind, deployment, user, profile, expires_at), shown=False)

    async def show(self, deployment: Deployment) -> ShownTokens:
        """The two tokens of a crew; one that is missing (at first, or because it was revoked) is made."""
        rows = {row["kind"]: row for row in await self._store.shown(deployment.id)}
        organization = await self._open_or_make(rows.get(TokenKind.ORGANIZATION), deployment.id, None)
        of_user = rows.get(TokenKind.USER)
        owner = None if of_user else await self._owner()
        user = await self._open_or_make(of_user, deployment.id, owner)
        return ShownTokens(organization, user, of_user["user"] if of_user else OWNER)

    async def revoke(self, name: str) -> TokenRow:
        """`name` is the token's id or its last four characters."""
        row, _ = await self._revoke(name)
        return row

    async def rotate(self, name: str) -> Secret:
        """A new token that may do what the old one could; the old one ends at once."""
        row, shown = await self._revoke(name)
        return await self._add(replace(row, id=new_id()), shown=shown)

    async def all(self, *, revoked_too: bool = False) -> list[dict[str, Any]]:
        return await self._store.all(revoked_too=revoked_too)

    async def _revoke(self, name: str) -> tuple[TokenRow, bool]:
        found = await self._store.named(name) if parse_id(name) or len(name) == len(last_four(name)) else []
        if len(found) > 1:
            raise NoSuchToken(
                f"More than one token ends in {name}.", "Name it by its id: `windlass tokens list` shows it."
            )
        revoked = await self._store.revoke(found[0]) if found else None
        if revoked is None:
            raise NoSuchToken(
                "There is no such token, or it is revoked already.",
                "Name it by its id or its last four characters: `windlass tokens list` shows both.",
            )
        logger.event("token.revoked", token_id=revoked[0].id)
        return revoked

    async def _owner(self) -> UUID:
        return await self._store.user(OWNER) or await self._store.add_user(OWNER) or await self.user(OWNER)

    async def _open_or_make(self, row: Mapping[str, Any] | None, deployment: UUID, user: UUID | None) -> Secret:
        if row:
            return Secret(self._key_ring.open(row["shown_copy"], _context(row["id"])))
        kind = TokenKind.USER if user else TokenKind.ORGANIZATION
        return await self._add(TokenRow(new_id(), kind, deployment, user, None, None), shown=True)

    async def _add(self, row: TokenRow, *, shown: bool) -> Secret:
        token = new_token(TokenKind(row.kind))
        copy = self._key_ring.seal(token.reveal(), _context(row.id)) if shown else None
        await self._store.add(NewToken(row, self.digest(token.reveal()), last_four(token.reveal()), copy))
        logger.event("token.created", token_id=row.id, kind=row.kind)
        return token


class TokenUse:
    """When each token was last used, kept in memory and written once in a while."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self._used: set[UUID] = set()

    def note(self, token: UUID) -> None:
        self._used.add(token)

    async def write(self) -> None:
        used, self._used = self._used, set()
        if used:
            await self._store.note_use(list(used), datetime.now(UTC))


def _context(token: UUID) -> str:
    return f"tokens.shown_copy:{token}"

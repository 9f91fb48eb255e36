from __future__ import annotations

import base64
import os
import re
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

END_OF_TOKEN = re.compile("[0-9A-Za-z]{4}")

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
        logger.event("user.added", user_id=added)
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
        while len(rows := await self._shown(deployment.id)) < len(TokenKind):
            # Of several that do so at once one succeeds, and its tokens are everybody's.
            await self._make_shown(deployment.id, TokenKind.ORGANIZATION, None)
            await self._make_shown(deployment.id, TokenKind.USER, await self._owner())
        organization, user = rows[TokenKind.ORGANIZATION], rows[TokenKind.USER]
        return ShownTokens(self._opened(organization), self._opened(user), user["user"])

    async def revoke(self, name: str) -> TokenRow:
        """`name` is the token's id or its last four characters."""
        token = await self._named(name)
        revoked = await self._store.revoke(token)
        if revoked is None:
            raise _no_such_token()
        logger.event("token.revoked", token_id=token)
        return revoked

    async def rotate(self, name: str) -> Secret:
        """A new token that may do what the old one could; the old one ends at once."""
        old = await self._named(name)
        made: list[Secret] = []

        def new(row: TokenRow, shown: bool) -> NewToken:
            token = new_token(TokenKind(row.kind))
            made.append(token)
            return self._new(replace(row, id=new_id()), token, shown=shown)

        added = await self._store.replace(old, new)
        if added is None:
            raise _no_such_token()
        logger.event("token.rotated", token_id=old, new_token_id=added.id)
        return made[-1]

    async def all(self, *, revoked_too: bool = False) -> list[dict[str, Any]]:
        return await self._store.all(revoked_too=revoked_too)

    async def _named(self, name: str) -> UUID:
        found = await self._store.named(name) if parse_id(name) or END_OF_TOKEN.fullmatch(name) else []
        if len(found) > 1:
            raise NoSuchToken(
                f"More than one token ends in {name}.", "Name it by its id: `windlass tokens list` shows it."
            )
        if not found:
            raise _no_such_token()
        return found[0]

    async def _owner(self) -> UUID:
        return await self._store.user(OWNER) or await self._store.add_user(OWNER) or await self.user(OWNER)

    async def _shown(self, deployment: UUID) -> dict[str, dict[str, Any]]:
        return {row["kind"]: row for row in await self._store.shown(deployment)}

    def _opened(self, row: Mapping[str, Any]) -> Secret:
        return Secret(self._key_ring.open(row["shown_copy"], _context(row["id"])))

    async def _make_shown(self, deployment: UUID, kind: TokenKind, user: UUID | None) -> None:
        await self._add(TokenRow(new_id(), kind, deployment, user, None, None), shown=True)

    async def _add(self, row: TokenRow, *, shown: bool) -> Secret:
        token = new_token(TokenKind(row.kind))
        if await self._store.add(self._new(row, token, shown=shown)):
            logger.event("token.created", token_id=row.id, kind=row.kind)
        return token

    def _new(self, row: TokenRow, token: Secret, *, shown: bool) -> NewToken:
        text = token.reveal()
        copy = self._key_ring.seal(text, _context(row.id)) if shown else None
        return NewToken(row, self.digest(text), last_four(text), copy)


class TokenUse:
    """When each token was last used, kept in memory and written once in a while."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self._used: set[UUID] = set()

    def note(self, token: UUID) -> None:
        self._used.add(token)

    async def write(self) -> None:
        used = set(self._used)
        if used:
            await self._store.note_use(list(used), datetime.now(UTC))
            self._used -= used  # only now: while the database is away they are kept


def _no_such_token() -> NoSuchToken:
    return NoSuchToken(
        "There is no such token, or it is revoked already.",
        "Name it by its id or its last four characters: `windlass tokens list` shows both.",
    )


def _context(token: UUID) -> str:
    return f"tokens.shown_copy:{token}"

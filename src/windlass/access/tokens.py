"""Creates, shows, rotates and revokes API tokens, and manages the users to whom they belong."""

# See docs/decisions/api.md#the-token-pepper-is-kept-in-the-database

from __future__ import annotations

import base64
import hmac
import os
import re
import shlex
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from windlass import log
from windlass.errors import WindlassError
from windlass.kickoffs.ids import new_id, parse_id
from windlass.rights import SCOPES_OF_KIND, Role, Scope
from windlass.secrets.key_ring import Sealed
from windlass.secrets.secret import Secret, TokenKind, digest, last_four, masked, new_token
from windlass.store.audit import COMMAND_LINE, Actor, Change
from windlass.store.tokens import NewToken, TokenFacts, TokenRow, TokenStore, UserRow

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from windlass.secrets.key_ring import KeyRing
    from windlass.store.deployments import Deployment
    from windlass.store.tokens import ProviderRules

OWNER = "owner"
"""The user whose token is shown for a crew: the person who set up the server."""

OF_COMMANDS = "command line"
"""The name of the personal token that commands on the server's machine use."""
MOST_PERSONAL = 100
"""Tokens of one user that are valid at once."""
OF_CREWS = (TokenKind.ORGANIZATION, TokenKind.USER)
"""The kinds of the two shown tokens of a crew."""
SCOPES_OF_SHOWN: dict[TokenKind, tuple[Scope, ...] | None] = {
    TokenKind.ORGANIZATION: (Scope.READ, Scope.RUN),
    TokenKind.USER: None,
}
"""Developers see these tokens, and a developer deletes nothing."""

END_OF_TOKEN = re.compile("[0-9A-Za-z]{4}")

logger = log.logger(__name__)


class NoSuchToken(WindlassError):  # noqa: N818 - describes the token
    pass


class NoSuchUser(WindlassError):  # noqa: N818 - describes the user
    pass


class UserExists(WindlassError):  # noqa: N818 - describes the user
    pass


class UserCanNot(WindlassError):  # noqa: N818 - describes the user
    """Reports that the user is disabled or has no role."""


class TooManyTokens(WindlassError):  # noqa: N818 - describes the tokens
    pass


class TokenTooLong(WindlassError):  # noqa: N818 - describes the token
    pass


class LastOwner(WindlassError):  # noqa: N818 - describes the user
    """Reports that the change would leave nobody who may manage users."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The user {name!r} is the last owner.", "Make another user an owner first.")


@dataclass(frozen=True, slots=True)
class ShownTokens:
    organization: Secret
    user: Secret
    user_name: str


@dataclass(frozen=True, slots=True)
class MaskedToken:
    """A shown token of a crew without its text. `user` is the name of its user, None for the organization's token."""

    id: UUID
    kind: TokenKind
    user: str | None
    mask: str


class Tokens:
    """Creates, shows, rotates and revokes API tokens.

    Only a digest of a token is stored. For a shown token an encrypted copy is stored too.
    """

    def __init__(self, store: TokenStore, key_ring: KeyRing, pepper: bytes) -> None:
        self._store = store
        self._key_ring = key_ring
        self._pepper = pepper

    @property
    def rules(self) -> ProviderRules:
        """Returns the limits for people who sign in with OpenID Connect."""
        return self._store.rules

    @classmethod
    async def open(cls, store: TokenStore, key_ring: KeyRing) -> Tokens:
        """Reads the pepper from the database, and creates it at the first call.

        The pepper is stored encrypted, so all tokens stay valid after a change of the master key.
        """
        fresh = key_ring.seal(base64.b64encode(os.urandom(32)).decode(), Sealed.TOKEN_PEPPER)
        sealed = await store.set_once("token_pepper", fresh)
        return cls(store, key_ring, base64.b64decode(key_ring.open(sealed, Sealed.TOKEN_PEPPER)))

    def digest(self, token: str) -> bytes:
        return digest(token, self._pepper)

    def key_for(self, purpose: bytes) -> bytes:
        """Returns a key of 32 bytes that all servers of the database have."""
        return hmac.digest(self._pepper, purpose, "sha256")

    async def add_user(self, name: str, role: Role | None = None, *, by: Actor = COMMAND_LINE) -> UUID:
        """Adds a user. Without a role the user can't use the control API. Raises UserExists."""
        added = await self._store.add_user(name, role, Change(by, "user.add", name, {"role": role}))
        if added is None:
            raise UserExists(f"There is a user {name!r} already.", "`windlass admin users list` shows the users.")
        logger.event("user.added", user_id=added)
        return added

    async def set_role(self, name: str, role: Role | None, *, by: Actor = COMMAND_LINE) -> None:
        """Sets the role of a user on all servers within a second. Raises NoSuchUser and LastOwner."""
        user = await self.user(name)
        change = Change(by, "user.set_role", name, {"role": role, "before": user.role})
        if not await self._store.set_role(user.id, role, change):
            raise LastOwner(name)
        logger.event("user.role_set", user_id=user.id, role=role)

    async def user(self, name: str) -> UserRow:
        found = await self._store.user(name)
        if found is None:
            raise NoSuchUser(
                f"There is no user {name!r}.", f"Add one with: windlass admin users add {shlex.quote(name)}"
            )
        return found

    async def enabled_user(self, name: str) -> UUID:
        """Returns the id of the user. Raises NoSuchUser, and UserCanNot for a disabled user."""
        found = await self.user(name)
        if found.disabled_at:
            raise UserCanNot(
                f"The user {name!r} is disabled.",
                f"Enable it first with: windlass admin users change {shlex.quote(name)} --enable",
            )
        return found.id

    async def user_with_role(self, name: str) -> UserRow:
        """Raises NoSuchUser, and UserCanNot for a user who is disabled or has no role."""
        await self.enabled_user(name)
        found = await self.user(name)
        if found.role is None:
            raise UserCanNot(
                f"The user {name!r} has no role, and so no access to the dashboard and the control API.",
                f"Set one first, such as: windlass admin users change {shlex.quote(name)} --role developer",
            )
        return found

    async def users(self, *, after: str | None = None, limit: int = 1000) -> list[UserRow]:
        """Returns users in the order of their names, those after `after`."""
        return await self._store.users(after=after, limit=limit)

    async def known_names(self, names: Collection[str]) -> set[str]:
        """Returns those of these names that users have, disabled ones too."""
        return await self._store.known_names(names) if names else set()

    async def disable_user(self, name: str, *, by: Actor = COMMAND_LINE) -> None:
        """Disables a user. Within a second every server refuses the user's tokens, until the user is enabled again.

        Raises NoSuchUser and LastOwner.
        """
        user = (await self.user(name)).id
        if not await self._store.disable_user(user, Change(by, "user.disable", name)):
            raise LastOwner(name)
        logger.event("user.disabled", user_id=user)

    async def remove_user(self, name: str, *, by: Actor = COMMAND_LINE) -> None:
        """Disables a user for good. A side job deletes the user, with all kickoffs and tokens.

        Raises NoSuchUser and LastOwner.
        """
        user = (await self.user(name)).id
        if not await self._store.remove_user(user, name, Change(by, "user.remove", name)):
            raise LastOwner(name)
        logger.event("user.disabled", user_id=user)

    async def enable_user(self, name: str, *, by: Actor = COMMAND_LINE) -> None:
        user = (await self.user(name)).id
        await self._store.enable_user(user, Change(by, "user.enable", name))
        logger.event("user.enabled", user_id=user)

    async def create(
        self,
        deployment: UUID | None,
        *,
        user: UUID | None = None,
        profile: str | None = None,
        expires_at: datetime | None = None,
        scopes: Collection[Scope] | None = None,
        by: Actor = COMMAND_LINE,
    ) -> Secret:
        """Creates a user token if `user` is given, else an organization's token.

        `deployment` None stands for every deployment, and `scopes` None for all scopes of the token's kind. Raises
        WindlassError for a scope that this kind can't have.
        """
        kind = TokenKind.USER if user else TokenKind.ORGANIZATION
        chosen = None if scopes is None else _checked(kind, scopes)
        if user and (found := await self._store.user(id=user)):
            expires_at = self.expiry(found, expires_at)
        row = TokenRow(new_id(), kind, deployment, user, profile, expires_at, chosen)
        return await self._add(row, shown=False, by=by)

    async def create_personal(
        self, user: str, name: str, *, expires_at: datetime | None = None, by: Actor = COMMAND_LINE
    ) -> tuple[TokenRow, Secret]:
        """Creates a token with the rights of the user's role.

        Raises NoSuchUser, UserCanNot, TooManyTokens and TokenTooLong.
        """
        found = await self.user_with_role(user)
        expires_at = self.expiry(found, expires_at)
        owner = found.id
        if len(await self.all(user=owner, limit=MOST_PERSONAL)) == MOST_PERSONAL:
            raise TooManyTokens(f"The user {user!r} has {MOST_PERSONAL} tokens.", "Revoke some of them first.")
        row = TokenRow(new_id(), TokenKind.PERSONAL, None, owner, None, expires_at, None, name, user, found.role)
        return row, await self._add(row, shown=False, by=by)

    def expiry(self, user: UserRow, wanted: datetime | None) -> datetime | None:
        """Returns when a new token of the user expires. A token of a person who signs in with OpenID Connect always
        does. Raises TokenTooLong.
        """
        if user.signed_in_at is None:
            return wanted
        now, rules = datetime.now(UTC), self.rules
        if wanted is None:
            return now + min(rules.usual, rules.longest)
        if wanted > now + rules.longest:
            days = rules.longest / timedelta(days=1)
            raise TokenTooLong(
                f"A token of {user.name!r} is valid for {days:g} days at most, because the user signs in with OpenID "
                "Connect.",
                "Give a shorter time. WINDLASS_SIGN_IN_TOKEN_MAX_DAYS sets the limit.",
            )
        return wanted

    async def command_line_token(self) -> Secret:
        """Returns the personal token of the user `owner` that commands on the server's own machine use.

        Makes the user an owner if the user has no role. Creates the token if it does not exist or was revoked. Raises
        UserCanNot if the user is disabled.
        """
        owner = await self.enabled_user(await self.ensure_owner())
        while (row := await self._store.of_the_command_line(owner)) is None:
            # If several processes do this at once, one succeeds, and all of them return its token.
            new = TokenRow(new_id(), TokenKind.PERSONAL, None, owner, None, None, None, OF_COMMANDS)
            await self._add(new, shown=True)
        return self._opened(row)

    async def ensure_owner(self) -> str:
        """Returns the name of the user `owner`. Makes the user an owner if the user has no role."""
        await self._owner()
        if (await self.user(OWNER)).role is None:
            await self.set_role(OWNER, Role.OWNER)
        return OWNER

    async def make_owner(self, name: str) -> Secret:
        """Makes the user an owner, a new user too. Returns a personal token of the user. Raises UserCanNot."""
        found = await self._store.user(name)
        if found is None:
            await self.add_user(name, Role.OWNER)
        elif found.role is not Role.OWNER:
            await self.set_role(name, Role.OWNER)
        _, token = await self.create_personal(name, "first owner")
        return token

    async def show(self, deployment: Deployment, *, by: Actor | None = None) -> ShownTokens:
        """Returns the two shown tokens of a deployment. Creates one that does not exist yet or that was revoked.

        With `by`, both are in the audit log as shown.
        """
        rows = await self._both_shown(deployment.id)
        organization, user = rows[TokenKind.ORGANIZATION], rows[TokenKind.USER]
        if by:
            await self._store.note(*(_shown_to(by, row, deployment) for row in (organization, user)))
        return ShownTokens(self._opened(organization), self._opened(user), user["user"])

    async def masked(self, deployment: Deployment) -> list[MaskedToken]:
        """Returns the two shown tokens of a deployment without their texts, that of the organization first."""
        rows = await self._both_shown(deployment.id)
        return [
            MaskedToken(row["id"], kind, row["user"], masked(kind, row["last_four"]))
            for kind, row in ((kind, rows[kind]) for kind in OF_CREWS)
        ]

    async def show_one(self, deployment: Deployment, kind: TokenKind, *, by: Actor) -> Secret:
        """Returns one of the two shown tokens of a deployment. The audit log has an entry when this returns."""
        row = (await self._both_shown(deployment.id))[kind]
        await self._store.note(_shown_to(by, row, deployment))
        return self._opened(row)

    async def rotate_shown(self, deployment: Deployment, kind: TokenKind, *, by: Actor) -> None:
        """Replaces one of the two shown tokens of a deployment by a new one. The old token is invalid at once."""
        await self.rotate(str((await self._both_shown(deployment.id))[kind]["id"]), by=by)

    async def _both_shown(self, deployment: UUID) -> dict[str, dict[str, Any]]:
        while len(rows := await self._shown(deployment)) < len(OF_CREWS):
            # If several processes do this at once, one succeeds, and all of them show its tokens.
            await self._make_shown(deployment, TokenKind.ORGANIZATION, None)
            await self._make_shown(deployment, TokenKind.USER, await self._owner())
        return rows

    async def revoke(self, name: str, *, by: Actor = COMMAND_LINE) -> TokenRow:
        """Revokes a token. `name` is its id or its last four characters."""
        token = await self._named(name)
        revoked = await self._store.revoke(token, lambda row: Change(by, "token.revoke", str(token), _facts(row)))
        if revoked is None:
            raise _no_such_token()
        logger.event("token.revoked", token_id=token)
        return revoked

    async def rotate(self, name: str, *, by: Actor = COMMAND_LINE) -> Secret:
        """Replaces a token by a new one with the same rights. The old token is invalid at once."""
        old = await self._named(name)
        made: list[Secret] = []

        def new(row: TokenRow, shown: bool) -> NewToken:
            token = new_token(TokenKind(row.kind))
            made.append(token)
            return self._new(replace(row, id=new_id()), token, shown=shown)

        def change(row: TokenFacts, new: TokenRow) -> Change:
            return Change(by, "token.rotate", str(old), {**_facts(row), "new_id": str(new.id)})

        added = await self._store.replace(old, new, change)
        if added is None:
            raise _no_such_token()
        logger.event("token.rotated", token_id=old, new_token_id=added.id)
        return made[-1]

    async def all(
        self, *, revoked_too: bool = False, user: UUID | None = None, after: UUID | None = None, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Returns tokens in the order of their creation, those after `after`; with `user`, those of this user alone."""
        return await self._store.all(revoked_too=revoked_too, user=user, after=after, limit=limit)

    async def newest(self, *, user: UUID | None, before: UUID | None, limit: int) -> list[dict[str, Any]]:
        """Returns valid tokens, the newest first, those before `before`; with `user`, those of this user alone."""
        return await self._store.newest(user=user, before=before, limit=limit)

    async def _named(self, name: str) -> UUID:
        found = await self._store.named(name) if parse_id(name) or END_OF_TOKEN.fullmatch(name) else []
        if len(found) > 1:
            raise NoSuchToken(f"More than one token ends in {name}.", "Use its id: `windlass tokens list` shows it.")
        if not found:
            raise _no_such_token()
        return found[0]

    async def _owner(self) -> UUID:
        await self._store.add_user(OWNER)
        return (await self.user(OWNER)).id

    async def _shown(self, deployment: UUID) -> dict[str, dict[str, Any]]:
        return {row["kind"]: row for row in await self._store.shown(deployment)}

    def _opened(self, row: Mapping[str, Any]) -> Secret:
        return Secret(self._key_ring.open(row["shown_copy"], Sealed.SHOWN_TOKEN.of(row["id"])))

    async def _make_shown(self, deployment: UUID, kind: TokenKind, user: UUID | None) -> None:
        row = TokenRow(new_id(), kind, deployment, user, None, None, SCOPES_OF_SHOWN[kind])
        await self._add(row, shown=True)

    async def _add(self, row: TokenRow, *, shown: bool, by: Actor = COMMAND_LINE) -> Secret:
        token = new_token(TokenKind(row.kind))

        def change(facts: TokenFacts) -> Change:
            return Change(by, "token.create", str(row.id), _facts(facts))

        if await self._store.add(self._new(row, token, shown=shown), None if shown else change):
            logger.event("token.created", token_id=row.id, kind=row.kind)
        return token

    def _new(self, row: TokenRow, token: Secret, *, shown: bool) -> NewToken:
        text = token.reveal()
        copy = self._key_ring.seal(text, Sealed.SHOWN_TOKEN.of(row.id)) if shown else None
        return NewToken(row, self.digest(text), last_four(text), copy)


class TokenUse:
    """Keeps in memory when tokens were last used, and writes these times to the database from time to time."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self._used: set[UUID] = set()

    def note(self, token: UUID) -> None:
        self._used.add(token)

    async def write(self) -> None:
        used = set(self._used)
        if used:
            await self._store.note_use(list(used), datetime.now(UTC))
            self._used -= used  # after the write, so that they are kept while the database is down


def _shown_to(by: Actor, row: Mapping[str, Any], deployment: Deployment) -> Change:
    details = {"kind": row["kind"], "last_four": row["last_four"], "deployment": deployment.slug, "user": row["user"]}
    return Change(by, "token.show", str(row["id"]), details)


def _facts(row: TokenFacts) -> dict[str, Any]:
    """Returns what names a token in the audit log for a reader."""
    return {
        "kind": row.kind,
        "last_four": row.last_four,
        "deployment": row.deployment or ("(all)" if row.kind != TokenKind.PERSONAL else None),
        "user": row.user,
        "user_id": row.user_id and str(row.user_id),
        "name": row.name,
        "scopes": row.scopes,
        "expires_at": row.expires_at.isoformat() if row.expires_at else None,
    }


def _no_such_token() -> NoSuchToken:
    return NoSuchToken(
        "There is no such token, or it is revoked already.",
        "Use its id or its last four characters: `windlass tokens list` shows both.",
    )


def _checked(kind: TokenKind, scopes: Collection[Scope]) -> tuple[Scope, ...]:
    possible = SCOPES_OF_KIND[kind]
    if impossible := [scope for scope in scopes if scope not in possible]:
        raise WindlassError(
            f"A token of this kind ({kind}) can't have the scope {impossible[0]}.",
            f"It can have: {', '.join(possible)}.",
        )
    return tuple(scope for scope in possible if scope in scopes)

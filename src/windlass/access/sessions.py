"""Signs people in to the dashboard: by a link that is valid once, by a password, or for OpenID Connect."""

# See docs/decisions/dashboard.md#a-session-is-read-at-each-request

from __future__ import annotations

import asyncio
import hmac
import secrets
import shlex
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import argon2
from argon2.exceptions import InvalidHashError, VerificationError

from windlass import log
from windlass.access.authentication import FailedAuthentications, Rate, Source, TooManyRequests
from windlass.access.openid import SignInRefused
from windlass.access.tokens import OWNER, LastOwner, NoSuchUser, UserCanNot, UserExists
from windlass.errors import WindlassError
from windlass.rights import Role
from windlass.secrets.secret import Secret
from windlass.store.audit import COMMAND_LINE, Actor, Change
from windlass.store.sessions import OIDC, Lifetime, SessionStore, SignIn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from windlass.access.openid import Identity, RoleRules
    from windlass.access.tokens import Tokens
    from windlass.store.database import Database
    from windlass.store.sessions import SessionItem, SessionRow

LIFETIME = Lifetime(idle=timedelta(hours=24), longest=timedelta(days=14))
LINK_VALID = timedelta(minutes=30)
MOST_SESSIONS = 50
"""Sessions that one user may have."""
SHORTEST_PASSWORD, LONGEST_PASSWORD = 12, 200
TRIES_PER_MINUTE = 10
"""Failed sign-ins by password for each user name, from all addresses together."""
HASHES_AT_ONCE = 2
"""Each takes 64 MiB of memory and 50 ms."""
MOST_WAITING = 50
"""Sign-ins by password that wait for their turn. Further ones are refused."""
LONGEST_AGENT = 200
LONGEST_COOKIE = 100
LONGEST_NAME = 101
"""One character more than the name of a user has: such a name is nobody's."""

logger = log.logger(__name__)


UNKNOWN = Source("unknown", limited=False)


class BadPassword(WindlassError):  # noqa: N818 - describes the password
    """Reports that a text can't become a password."""


@dataclass(frozen=True, slots=True)
class Person:
    """A person who is signed in. `csrf` is the text that each form of the session sends.

    `may_set_password` is False for a person whom an OpenID Connect provider authenticated: who loses the account there
    must not keep another way in.
    """

    user_id: UUID
    name: str
    role: Role
    session: UUID
    has_password: bool
    may_set_password: bool
    csrf: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Client:
    """The program of the person, as the request shows it. `source` is what its failed sign-ins are counted by."""

    address: str | None
    agent: str | None
    source: Source = UNKNOWN


class Sessions:
    """Only digests of cookies and links are stored. Each server of a database accepts the cookies of the others.

    `failures` counts failed sign-ins with the failed authentications of the API, by address.
    """

    def __init__(self, database: Database, tokens: Tokens, failures: FailedAuthentications | None = None) -> None:
        self._store = SessionStore(database, replace(LIFETIME, of_provider=tokens.rules.within))
        self._tokens = tokens
        self._key = tokens.key_for(b"windlass session")
        self._csrf_key = tokens.key_for(b"windlass csrf")
        self._hasher = argon2.PasswordHasher()
        self._hashing = asyncio.Semaphore(HASHES_AT_ONCE)
        self._waiting = 0
        self.failures = failures or FailedAuthentications(0)
        self._tries: Rate[str] = Rate(TRIES_PER_MINUTE / 60, TRIES_PER_MINUTE)
        self._nobody: str | None = None
        self.cookie = f"windlass_session_{tokens.key_for(b'windlass cookie')[:3].hex()}"
        """The name of the cookie. Servers on other ports of the same host share the browser's cookies."""

    async def person(self, cookie: str | None) -> Person | None:
        """Returns the person of the cookie, None for one that is not valid any more."""
        if not cookie or len(cookie) > LONGEST_COOKIE:
            return None
        row = await self._store.by_digest(self._digest(cookie))
        if row is None:
            return None
        if row.is_due:
            await self._store.note_use(row.id)
        return self._person(row)

    async def new_link(self, user: str, *, by: Actor = COMMAND_LINE) -> Secret:
        """Returns the code of a link that signs the user in once, within LINK_VALID. Raises NoSuchUser, UserCanNot.

        The user `owner` is made an owner if the user has no role.
        """
        if user == OWNER:
            await self._tokens.ensure_owner()
        found = await self._tokens.user_with_role(user)
        code = secrets.token_urlsafe(24)
        if not await self._store.add_link(self._digest(code), found.id, LINK_VALID, Change(by, "user.make_link", user)):
            raise UserCanNot(
                f"The user {user!r} was disabled meanwhile.", "Look at the user: windlass admin users list"
            )
        return Secret(code)

    async def needs_link(self) -> bool:
        """Returns whether no owner can sign in with a password."""
        return Role.OWNER not in await self._store.roles_with_password()

    async def has_passwords(self) -> bool:
        """Returns whether any user can sign in with a password."""
        return bool(await self._store.roles_with_password())

    async def by_link(self, code: str, client: Client) -> str:
        """Returns the cookie of a new session. Raises SignInRefused and TooManyRequests."""
        with self.failures.attempt(client.source, SignInRefused):
            user = await self._store.use_link(self._digest(code[:LONGEST_COOKIE]))
            if user is None or await self._store.name_of(user) is None:
                raise SignInRefused(
                    "This link was used before, or it is too old.", "Get a new one with: windlass admin users link NAME"
                )
        return await self.begin(user, "link", client)

    async def by_password(self, name: str, password: str, client: Client) -> str:
        """Returns the cookie of a new session. Raises SignInRefused and TooManyRequests."""
        name = name[:LONGEST_NAME]
        async with self._try(name, client):
            found = await self._store.password(name)
            stored = found[1] if found else None
            fits = await self._verified(stored, password)
            if found is None or stored is None or not fits:
                logger.event("sign_in.refused", address=client.address)
                raise SignInRefused(
                    "The name or the password is wrong.",
                    "Without a password, sign in by a link: windlass admin users link NAME",
                )
        if self._hasher.check_needs_rehash(stored):
            newer = await self._hashed(password)
            if await self._store.update_hash(found[0], stored, newer):
                stored = newer
        return await self.begin(found[0], "password", client, stored)

    @asynccontextmanager
    async def _try(self, name: str, client: Client) -> AsyncIterator[None]:
        """Counts a try of a password before the block hashes it: a hash costs much, and tries at the same time count
        too. A try that is not refused does not count. Raises TooManyRequests.
        """
        if self._waiting >= MOST_WAITING:
            raise TooManyRequests("Too many people sign in at this moment.", "Try again in some seconds.", 5)
        with self.failures.attempt(client.source, SignInRefused):
            if seconds := self._tries.take(name):
                raise TooManyRequests(
                    "There were too many failed sign-ins for this user.",
                    "Wait a minute, or sign in by a link: windlass admin users link NAME",
                    seconds,
                )
            self._waiting += 1
            try:
                yield
            except SignInRefused:
                raise
            except Exception:
                self._tries.give_back(name)
                raise
            else:
                self._tries.give_back(name)
            finally:
                self._waiting -= 1

    async def by_identity(self, identity: Identity, roles: RoleRules, client: Client) -> str:
        """Returns the cookie of a new session for a person whom an OpenID Connect provider has authenticated.

        At the first sign-in, the person becomes the user of this name, or a new user. Raises SignInRefused.
        """
        by = Actor(None, f"(OpenID Connect: {identity.name})", address=client.address)
        role = roles.role_of(identity.groups) or roles.default
        name = await self._store.user_of_identity(identity.issuer, identity.subject)
        if name is None:
            name = await self._linked(identity, role, by)
        if roles.by_group and (await self._tokens.user(name)).role != role:
            with suppress(LastOwner):  # who keeps the role
                await self._tokens.set_role(name, role, by=by)
        return await self.begin((await self._tokens.user(name)).id, OIDC, client)

    async def _linked(self, identity: Identity, role: Role | None, by: Actor) -> str:
        """Returns the name of the user as whom the person signs in from now on."""
        name = identity.name
        try:
            await self._tokens.user(name)
        except NoSuchUser:
            if role is None:
                raise SignInRefused(
                    f"There is no user {name!r} on this server.",
                    f"Ask an owner to add you: windlass admin users add {shlex.quote(name)} --role viewer",
                ) from None
            with suppress(UserExists):  # of two first sign-ins at once, one adds the user
                await self._tokens.add_user(name, role, by=by)
        if not await self._store.link_identity(identity.issuer, identity.subject, name, by):
            raise SignInRefused(
                f"Another person of your provider signs in as the user {name!r}.", "Ask an owner to remove that user."
            )
        return name

    async def begin(self, user: UUID, method: str, client: Client, password_hash: str | None = None) -> str:
        """Begins a session of a user who has proved who they are, with `password_hash` by this password.

        Returns its cookie. Raises SignInRefused.
        """
        name = await self._store.name_of(user)
        if name is None:
            raise _barred()
        cookie = secrets.token_urlsafe(32)
        given = SignIn(user, method, client.address, (client.agent or "")[:LONGEST_AGENT] or None, password_hash)
        by = Actor(user, name, address=client.address)
        if not await self._store.add(self._digest(cookie), given, by, most=MOST_SESSIONS):
            raise _barred()  # the user was disabled, or has another password, since the proof
        logger.event("sign_in.accepted", user_id=user, method=method)
        return cookie

    async def sessions_of(self, person: Person) -> list[SessionItem]:
        return await self._store.of_user(person.user_id, limit=MOST_SESSIONS)

    async def sign_out(self, person: Person, session: UUID | None = None) -> None:
        """Ends a session of the person: this one, or another."""
        await self._store.end(session or person.session, person.user_id)

    async def sign_out_everywhere(self, person: Person, by: Actor) -> int:
        """Ends all sessions of the person. Returns how many there were."""
        return await self._store.end_others(person.user_id, None, by)

    async def change_password(self, person: Person, current: str, new: str, by: Actor, client: Client) -> None:
        """Sets the person's password, and ends the person's other sessions.

        Raises BadPassword, SignInRefused and TooManyRequests.
        """
        if not person.may_set_password:
            raise BadPassword("You sign in with OpenID Connect.", "An owner's link lets you set a password, too.")
        if person.has_password:
            async with self._try(person.name, client):
                found = await self._store.password(person.name)
                if not await self._verified(found[1] if found else None, current):
                    raise SignInRefused("The current password is wrong.", "Without it, ask an owner for a new link.")
        await self.set_password(person.name, new, by=by, kept=person.session)

    async def set_password(self, user: str, new: str, *, by: Actor = COMMAND_LINE, kept: UUID | None = None) -> None:
        """Sets the password of a user, and ends the user's sessions but `kept`. Raises BadPassword, NoSuchUser."""
        if not SHORTEST_PASSWORD <= len(new) <= LONGEST_PASSWORD:
            raise BadPassword(f"A password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters.")
        found = await self._tokens.user(user)
        change = Change(by, "user.set_password", user)
        await self._store.set_password(found.id, await self._hashed(new), change, kept=kept)

    async def remove_expired(self) -> None:
        await self._store.end_expired()

    def _person(self, row: SessionRow) -> Person:
        csrf = hmac.digest(self._csrf_key, row.digest, "sha256").hex()
        return Person(row.user_id, row.user, row.role, row.id, row.has_password, row.method != OIDC, csrf)

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")

    async def _hashed(self, password: str) -> str:
        async with self._hashing:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def _verified(self, stored: str | None, password: str) -> bool:
        """Returns whether the password fits. It takes as long for a user who does not exist or has no password."""
        if len(password) > LONGEST_PASSWORD:
            return False
        if self._nobody is None:
            self._nobody = await self._hashed(secrets.token_hex())
        async with self._hashing:
            return await asyncio.to_thread(self._fits, stored or self._nobody, password)

    def _fits(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, password)
        except (VerificationError, InvalidHashError):
            return False


def _barred() -> SignInRefused:
    return SignInRefused(
        "You may not use the dashboard: your user is disabled or has no role, or your password was changed.",
        "Ask an owner for a role, or sign in again.",
    )

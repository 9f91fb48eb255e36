# See docs/decisions/api.md#a-scope-that-is-not-stored-means-all-scopes

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from psycopg.errors import UniqueViolation

from windlass.kickoffs.ids import new_id
from windlass.rights import SCOPES_OF_KIND, SCOPES_OF_ROLE, Role, Scope
from windlass.store.audit import Actor, Change, record
from windlass.store.database import Connection, Database, Row, Statement, Store, fetch, queries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence
    from uuid import UUID


SQL = queries("tokens")
MEMBERS = ("id", "kind", "deployment_id", "user_id", "profile", "expires_at", "scopes", "name")
PERSONAL = "personal"
KINDS = {"organization": "Bearer Token", "user": "User Bearer Token", PERSONAL: "personal token"}
USER_REMOVAL = "remove_user"
"""The name of the side job that deletes a user."""
OF_THE_COMMAND_LINE = "tokens_of_the_command_line"
"""The index that permits one such token. Each other conflict of two tokens but that of `add` is an error."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """The stored data of a token. It alone determines the token's rights; the text of the token does not.

    None means every deployment for `deployment_id`, the deployment's profile for `profile`, and all scopes of the
    token's kind for `scopes`. The scopes of a personal token are those of its user's `role`. `user` is the name of the
    user, `name` that of a personal token. `last_four` and `digest` are empty unless the token was found by it. After
    `sign_in_until` it is refused until its user signs in with OpenID Connect; None for no such limit.
    """

    id: UUID
    kind: str
    deployment_id: UUID | None
    user_id: UUID | None
    profile: str | None
    expires_at: datetime | None
    scopes: tuple[Scope, ...] | None = None
    name: str | None = None
    user: str | None = None
    role: Role | None = None
    last_four: str = field(default="", compare=False)
    sign_in_until: datetime | None = None
    digest: bytes = field(default=b"", repr=False, compare=False)

    def allows(self, scope: Scope) -> bool:
        if self.kind == PERSONAL:
            return self.role is not None and scope in SCOPES_OF_ROLE[self.role]
        return scope in (SCOPES_OF_KIND[self.kind] if self.scopes is None else self.scopes)

    @property
    def asker(self) -> UUID | None:
        """Returns the user to whose kickoffs the token is limited in the API of a crew, or None for no limit."""
        return None if self.kind == PERSONAL else self.user_id

    def actor(self, address: str | None) -> Actor:
        """Returns who makes a change with this token, from the client with this address."""
        words = f"{KINDS[self.kind]}{f' {self.name}' if self.name else ''} …{self.last_four}"
        if self.user_id is None:
            return Actor(None, words, self.id, address, kind="client")
        kind: Literal["person", "client"] = "person" if self.kind == PERSONAL else "client"
        return Actor(self.user_id, self.user or "", self.id, address, words, kind, self.role)

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= datetime.now(UTC)

    @property
    def needs_sign_in(self) -> bool:
        return self.sign_in_until is not None and self.sign_in_until <= datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to store. `digest` is its HMAC-SHA256. `shown_copy` is the encrypted token, if it must be shown again."""

    row: TokenRow
    digest: bytes
    last_four: str
    shown_copy: str | None = None


@dataclass(frozen=True, slots=True)
class ProviderRules:
    """Limits of the tokens and sessions of people who sign in with OpenID Connect: people who lose the account there
    lose their tokens too.

    A token is valid for `usual` unless another time is given, and for `longest` at most. A token and a session count
    for `within` after the last sign-in.
    """

    usual: timedelta = timedelta(days=90)
    longest: timedelta = timedelta(days=365)
    within: timedelta = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """What names a token for a reader of the audit log. `deployment` None: every one."""

    kind: str
    last_four: str
    deployment: str | None
    user: str | None
    user_id: UUID | None
    name: str | None
    scopes: list[str] | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class UserRow:
    id: UUID
    name: str
    role: Role | None
    created_at: datetime
    disabled_at: datetime | None
    signed_in_at: datetime | None = None
    """The last sign-in with OpenID Connect. None: the user never signed in with it."""


class TokenStore(Store):
    def __init__(self, database: Database, rules: ProviderRules = ProviderRules()) -> None:
        super().__init__(database)
        self.rules = rules
        self._limits = {"longest": rules.longest, "within": rules.within}

    async def add(self, token: NewToken, change: Callable[[TokenFacts], Change] | None = None) -> bool:
        """Adds a token, and records the change that `change` makes. Returns False, and adds none, when the crew already
        has a shown token of this kind, or the command line has one.
        """
        try:
            async with self._database.transaction() as connection:
                added = bool(await fetch(connection, SQL["add"], _values(token)))
                if added and change:
                    await record(connection, change(await _facts(connection, token.row.id)))
        except UniqueViolation as error:
            if error.diag.constraint_name != OF_THE_COMMAND_LINE:
                raise
            return False
        return added

    async def replace(
        self,
        old: UUID,
        new: Callable[[TokenRow, bool], NewToken],
        change: Callable[[TokenFacts, TokenRow], Change] | None = None,
    ) -> TokenRow | None:
        """Revokes a token and adds the token that `new` makes from the old row and whether it was a shown token.

        Both happen in one transaction. Returns None when `old` is unknown or already revoked.
        """
        async with self._database.change() as connection:
            rows = await fetch(connection, SQL["revoke"], {"id": old})
            if not rows:
                return None
            token = new(*_revoked(rows[0]))
            await connection.execute(SQL["add"], _values(token))
            if change:
                await record(connection, change(await _facts(connection, old), token.row))
        return token.row

    async def by_digests(self, digests: Sequence[bytes]) -> dict[bytes, TokenRow]:
        """Returns the tokens that are not revoked and whose users are not disabled, by digest."""
        rows = await self._database.rows(SQL["by_digests"], {"digests": list(digests), **self._limits}, soon=True)
        return {row["digest"]: _token(row) for row in rows}

    async def all(
        self, *, revoked_too: bool = False, user: UUID | None = None, after: UUID | None = None, limit: int = 1000
    ) -> list[Row]:
        """Returns the tokens in the order of their creation; with `user`, those of this user alone."""
        values = {"all": revoked_too, "user": user, "after": after, "before": None, "newest_first": False}
        return await self._database.rows(SQL["list"], {**values, **self._limits, "limit": limit})

    async def newest(self, *, user: UUID | None, before: UUID | None, limit: int) -> list[Row]:
        """Returns valid tokens, the newest first, those before `before`; with `user`, those of this user alone."""
        values = {"all": False, "user": user, "after": None, "before": before, "newest_first": True}
        return await self._database.rows(SQL["list"], {**values, **self._limits, "limit": limit})

    async def shown(self, deployment: UUID) -> list[Row]:
        """Returns id, kind, user, encrypted copy and last four characters of the tokens that a crew's page shows."""
        return await self._database.rows(SQL["shown"], {"deployment": deployment})

    async def note(self, *changes: Change) -> None:
        """Writes entries of the audit log without another change."""
        async with self._database.transaction() as connection:
            for change in changes:
                await record(connection, change)

    async def named(self, name: str) -> list[UUID]:
        """Returns tokens with this id or these last four characters that are not revoked.

        Returns two at most: two results mean that the name is ambiguous.
        """
        return [row["id"] for row in await self._database.rows(SQL["named"], {"name": name})]

    async def of_the_command_line(self, user: UUID) -> Row | None:
        """Returns id and encrypted copy of the personal token that commands on the server's machine use."""
        return await self._database.row(SQL["of_the_command_line"], {"user": user})

    async def revoke(self, token: UUID, change: Callable[[TokenFacts], Change] | None = None) -> TokenRow | None:
        """Revokes a token on every server. Returns None when it is unknown or already revoked."""
        async with self._database.change() as connection:
            rows = await fetch(connection, SQL["revoke"], {"id": token})
            if rows and change:
                await record(connection, change(await _facts(connection, token)))
        return _revoked(rows[0])[0] if rows else None

    async def note_use(self, tokens: list[UUID], at: datetime) -> None:
        await self._database.execute(SQL["note_use"], {"ids": tokens, "at": at})

    async def add_user(self, name: str, role: Role | None = None, change: Change | None = None) -> UUID | None:
        """Adds a user. Returns None when the name is taken."""
        rows = await self._write(SQL["add_user"], {"id": new_id(), "name": name, "role": role}, change)
        return rows[0]["id"] if rows else None

    async def user(self, name: str | None = None, *, id: UUID | None = None) -> UserRow | None:  # noqa: A002
        """Returns the user with this name or this id."""
        row = await self._database.row(SQL["user"], {"name": name, "id": id})
        return _user(row) if row else None

    async def users(self, *, after: str | None = None, limit: int = 1000) -> list[UserRow]:
        """Returns the users in the order of their names."""
        return [_user(row) for row in await self._database.rows(SQL["users"], {"after": after, "limit": limit})]

    async def known_names(self, names: Collection[str]) -> set[str]:
        """Returns those of these names that users have, disabled ones too."""
        return {row["name"] for row in await self._database.rows(SQL["known_names"], {"names": list(names)})}

    async def set_role(self, user: UUID, role: Role | None, change: Change | None = None) -> bool:
        """Sets the role. Returns False, and changes nothing, when the last owner would lose the role."""
        return await self._change_owners(SQL["set_role"], {"id": user, "role": role}, change, stays=role is Role.OWNER)

    async def disable_user(self, user: UUID, change: Change | None = None) -> bool:
        """Disables the user. No server accepts the user's tokens any more. Returns False, and changes nothing, for the
        last owner.
        """
        return await self._change_owners(SQL["disable_user"], {"id": user}, change, stays=False)

    async def remove_user(self, user: UUID, name: str, change: Change) -> bool:
        """Disables the user, and defers the side job that deletes the user. Returns False for the last owner."""
        from windlass.store.side_jobs import defer  # noqa: PLC0415 - imports procrastinate, which commands do not need

        async def begin(connection: Connection) -> None:
            await defer(connection, USER_REMOVAL, user=name)

        return await self._change_owners(SQL["disable_user"], {"id": user}, change, stays=False, begin=begin)

    async def enable_user(self, user: UUID, change: Change | None = None) -> None:
        await self._write(SQL["enable_user"], {"id": user}, change, everywhere=True)

    async def set_once(self, name: str, value: str) -> str:
        """Sets the setting if it has no value, and returns its value."""
        await self._database.execute(SQL["set_once"], {"name": name, "value": value})
        row = await self._database.row(SQL["setting"], {"name": name})
        return str(row["value"]) if row else value

    async def _write(
        self, statement: Statement, values: Row, change: Change | None, *, everywhere: bool = False
    ) -> list[Row]:
        """Executes the statement, and records the change if the statement changed a row. With `everywhere`, returns
        when every server has the change.
        """
        async with self._database.change() if everywhere else self._database.transaction() as connection:
            rows = await fetch(connection, statement, values)
            if rows and change:
                await record(connection, change)
        return rows

    async def _change_owners(
        self,
        statement: Statement,
        values: Row,
        change: Change | None,
        *,
        stays: bool,
        begin: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> bool:
        """Executes the statement, unless it takes the rights of the last owner. `stays`: the user keeps them.

        The sessions of a user who may not use the dashboard any more end.
        """
        async with self._database.change() as connection:
            await connection.execute(SQL["lock_owners"])
            if not stays and await _is_last_owner(connection, values["id"]):
                return False
            await connection.execute(statement, values)
            await connection.execute(SQL["end_sign_ins"], {"id": values["id"]})  # after it, and so after its locks
            if begin:
                await begin(connection)
            if change:
                await record(connection, change)
        return True


async def _facts(connection: Connection, token: UUID) -> TokenFacts:
    (row,) = await fetch(connection, SQL["facts"], {"id": token})
    return TokenFacts(**row)


async def _is_last_owner(connection: Connection, user: UUID) -> bool:
    (row,) = await fetch(connection, SQL["owners"], {"id": user})
    return bool(row["is_owner"]) and not row["others"]


def _user(row: Row) -> UserRow:
    return UserRow(**{**row, "role": Role(row["role"]) if row["role"] else None})


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
        "name": row.name,
        "scopes": None if row.scopes is None else [str(scope) for scope in row.scopes],
    }


def _revoked(row: Row) -> tuple[TokenRow, bool]:
    return _token({name: row[name] for name in MEMBERS}), row["shown"]


def _token(row: Row) -> TokenRow:
    scopes = None if row["scopes"] is None else tuple(map(Scope, row["scopes"]))
    role = Role(row["role"]) if row.get("role") else None
    return TokenRow(**{**row, "scopes": scopes, "role": role})

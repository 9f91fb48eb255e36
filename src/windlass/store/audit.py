"""The audit log: who changed what, when and from where. An entry is written in the transaction of its change."""

# See docs/decisions/deployments.md#an-entry-of-the-audit-log-is-in-the-transaction-of-its-change

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from windlass.kickoffs.events import to_json
from windlass.kickoffs.ids import new_id
from windlass.rights import Role, limit_of
from windlass.store.database import Connection, Store, queries

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

SQL = queries("audit")


@dataclass(frozen=True, slots=True)
class Actor:
    """Identifies who makes a change. `address` is the address of the client, None on the server's own machine.

    `way` is what the user made the change with, such as `dashboard` or a token.
    """

    user_id: UUID | None
    user: str
    token_id: UUID | None = None
    address: str | None = None
    way: str | None = None
    kind: Literal["person", "client", "server"] = "person"
    """`client` has a token of a crew. `server` does what a recorded change has caused."""
    role: Role | None = None
    """That of a person."""

    @property
    def words(self) -> str:
        """Returns who it is for a reader: the words stay when the user and the token are removed."""
        return f"{self.user} ({self.way})" if self.way else self.user

    @property
    def sees(self) -> UUID | None:
        """Returns the user to whose deployments lists are limited, None for all deployments."""
        return limit_of(self.user_id, self.role)

    @property
    def is_person(self) -> bool:
        return self.kind == "person"

    def columns(self) -> dict[str, Any]:
        """Returns the values of `record` for an entry by this actor, with a new id."""
        return {
            "entry": new_id(),
            "user_id": self.user_id,
            "user": self.user,
            "token_id": self.token_id,
            "address": self.address,
        }


REMOVAL = Actor(None, "(removal)", kind="server")
"""The server, which stops and deletes the kickoffs of a crew or a user that somebody has removed."""
COMMAND_LINE = Actor(None, "(command line)", role=Role.OWNER)
"""A command that opens the database of its machine and has no token. Whoever may do that may do all."""


@dataclass(frozen=True, slots=True)
class Change:
    """An entry to write. `details` never holds a value of a variable or a token."""

    by: Actor
    action: str
    target: str
    details: Mapping[str, Any] = field(default_factory=dict)


async def record(connection: Connection, change: Change) -> None:
    """Writes the entry. It becomes visible with the other changes of the connection's transaction."""
    values = {
        **change.by.columns(),
        "action": change.action,
        "target": change.target,
        "details": to_json(dict(change.details)),
    }
    await connection.execute(SQL["record"], values)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    id: UUID
    at: datetime
    user: str
    token_id: UUID | None
    action: str
    target: str
    details: dict[str, Any]
    address: str | None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Selects entries. Each member narrows the selection when it is set.

    `action` also selects the actions below it: `variable` selects `variable.set`. `before` is the id after which the
    page begins, so the page holds older entries.
    """

    user: str | None = None
    action: str | None = None
    target: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: UUID | None = None


class AuditStore(Store):
    async def listed(self, wanted: AuditFilter, *, limit: int) -> list[AuditEntry]:
        """Returns the newest entries that match."""
        values = {name: getattr(wanted, name) for name in AuditFilter.__slots__}
        return [AuditEntry(**row) for row in await self._database.rows(SQL["listed"], {**values, "limit": limit})]

    async def add(self, change: Change) -> None:
        """Writes an entry without another change in its transaction."""
        async with self._database.transaction() as connection:
            await record(connection, change)

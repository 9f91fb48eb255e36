"""The members of deployments, and who sees a deployment."""

# See docs/decisions/security.md#one-statement-decides-who-sees-a-deployment

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from windlass.errors import WindlassError
from windlass.store.audit import Change, record
from windlass.store.database import Store, fetch, filled, queries
from windlass.store.managing import locked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime
    from uuid import UUID

    from windlass.store.database import Connection, Row, Statement

SQL = queries("members")
MOST_MEMBERS = 1000
"""Members of one deployment."""

Subject = Literal["slug", "build", "kickoff", "delivery", "question"]
"""What names a deployment: its slug, or the id of something that belongs to it."""
STANDING: dict[Subject, Statement] = {
    "slug": filled(SQL["standing"], which=SQL["by_slug"]),
    "build": filled(SQL["standing"], which=SQL["by_build"]),
    "kickoff": filled(SQL["standing"], which=SQL["by_kickoff"]),
    "delivery": filled(SQL["standing"], which=SQL["by_delivery"]),
    "question": filled(SQL["standing"], which=SQL["by_question"]),
}


class TooManyMembers(WindlassError):  # noqa: N818 - describes the members
    pass


@dataclass(frozen=True, slots=True)
class Standing:
    """What a person is in a deployment. `sees` and `owns` count for people who are no owners of the server."""

    slug: str
    sees: bool
    owns: bool
    members_only: bool


@dataclass(frozen=True, slots=True)
class MemberRow:
    """`user` is the name of the user."""

    user: str
    is_owner: bool
    added_at: datetime


class MemberStore(Store):
    async def standing(self, subject: Subject, value: str | UUID, person: UUID) -> Standing | None:
        """Returns what the person is in the deployment that `value` names. None: there is no such deployment."""
        values = {"subject": value, "person": person}
        row = await self._database.row(STANDING[subject], values, soon=True)
        return Standing(**row) if row else None

    async def of(self, slug: str) -> list[MemberRow]:
        """Returns the members of a deployment, its owners first."""
        rows = await self._database.rows(SQL["of_deployment"], {"slug": slug, "limit": MOST_MEMBERS})
        return [MemberRow(**row) for row in rows]

    async def put(self, slug: str, user: str, change: Change, *, is_owner: bool) -> bool:
        """Makes the user a member or an owner. Returns False for no such user. Raises NoSuchDeployment, and
        TooManyMembers.
        """
        async with self._notified(slug) as (connection, row):
            values = {"deployment": row["id"], "user": user, "is_owner": is_owner}
            if not await fetch(connection, SQL["put"], values):
                return False
            (found,) = await fetch(connection, SQL["count"], {"deployment": row["id"]})
            if found["count"] > MOST_MEMBERS:
                raise TooManyMembers(f"A deployment can have {MOST_MEMBERS} members.", "Remove some.")
            await record(connection, change)
        return True

    async def remove(self, slug: str, user: str, change: Change) -> bool:
        """Returns False for a user who is no member. Raises NoSuchDeployment."""
        async with self._notified(slug) as (connection, row):
            if not await fetch(connection, SQL["remove"], {"deployment": row["id"], "user": user}):
                return False
            await record(connection, change)
        return True

    async def limit_to_members(self, slug: str, change: Change, *, members_only: bool) -> None:
        """Raises NoSuchDeployment."""
        async with self._notified(slug) as (connection, row):
            values = {"deployment": row["id"], "members_only": members_only}
            await connection.execute(SQL["limit_to_members"], values)
            await record(connection, change)

    @asynccontextmanager
    async def _notified(self, slug: str) -> AsyncIterator[tuple[Connection, Row]]:
        """Provides a change of who sees the deployment. Every server knows it afterwards. Raises NoSuchDeployment."""
        async with locked(self._database, slug) as (connection, row):
            yield connection, row
            await connection.execute(SQL["notify"], {"slug": slug})

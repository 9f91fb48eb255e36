"""Gives each deployment the system user that its crew runs as, the same on all servers of a database."""

# See docs/decisions/security.md#each-deployment-has-a-user

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.errors import SettingsError
from windlass.store.database import Store, fetch, queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.store.database import Database

SQL = queries("crew_users")


class CrewUsers(Store):
    """`numbers` are those of users that deployments may get. A deployment keeps its number until it is removed."""

    def __init__(self, database: Database, numbers: Sequence[int]) -> None:
        super().__init__(database)
        self._numbers = numbers
        self._known: dict[UUID, int] = {}

    async def of(self, deployment: UUID) -> int | None:
        """Returns the number of the deployment's user, None where deployments have no users of their own.

        Raises SettingsError when no number is left.
        """
        if not self._numbers:
            return None
        if deployment not in self._known:
            found = await self._database.rows(SQL["of_deployment"], {"deployment": deployment})
            self._known[deployment] = found[0]["number"] if found else await self._given(deployment)
        return self._known[deployment]

    async def _given(self, deployment: UUID) -> int:
        async with self._database.transaction() as connection:
            await connection.execute(SQL["lock"])
            wanted = {"deployment": deployment, "numbers": list(self._numbers)}
            if found := await fetch(connection, SQL["of_deployment"], wanted):  # another server was faster
                return int(found[0]["number"])
            if not (found := await fetch(connection, SQL["give"], wanted)):
                raise SettingsError(
                    f"all {len(self._numbers)} users of WINDLASS_CREW_USERS belong to deployments.",
                    "Remove deployments that are not needed, or set WINDLASS_CREW_USERS to a larger range on all "
                    "servers.",
                )
            return int(found[0]["number"])

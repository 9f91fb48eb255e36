"""The variables of deployments. All values are stored encrypted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.errors import WindlassError
from windlass.store.audit import Change, record
from windlass.store.database import fetch, queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from windlass.store.database import Database

SQL = queries("variables")
MOST_VARIABLES = 500
"""Variables of one deployment."""
MOST_BYTES = 1 << 20
"""Bytes that the encrypted values of one deployment have together. Each claim of a kickoff reads all of them."""


class TooManyVariables(WindlassError):  # noqa: N818 - describes the variables
    pass


@dataclass(frozen=True, slots=True)
class VariableRow:
    """`value` is encrypted. `updated_by` is the name of a user."""

    name: str
    value: str
    secret: bool
    updated_at: datetime
    updated_by: str | None


@dataclass(frozen=True, slots=True)
class SealedVariable:
    """A variable of a deployment, with its encrypted value."""

    name: str
    value: str
    secret: bool


def sealed_variables(rows: Iterable[dict[str, Any]]) -> tuple[SealedVariable, ...]:
    return tuple(SealedVariable(**row) for row in rows)


class VariableStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_deployment(self, deployment: UUID) -> list[VariableRow]:
        """Returns the variables in the order of their names."""
        rows = await self._database.rows(SQL["of_deployment"], {"deployment": deployment})
        return [VariableRow(**row) for row in rows]

    async def set(self, deployment: UUID, variables: Sequence[SealedVariable], change: Change) -> None:
        """Sets all of these, or none, and keeps the others. Raises TooManyVariables.

        Of two calls at once that set the same variable, the value of the later commit stays.
        """
        ordered = sorted(variables, key=lambda one: one.name)  # two calls lock common rows in the same order
        values = {
            "deployment": deployment,
            "names": [one.name for one in ordered],
            "values": [one.value for one in ordered],
            "secrets": [one.secret for one in ordered],
            "by": change.by.user_id,
        }
        async with self._database.transaction() as connection:
            await connection.execute(SQL["set"], values)
            (load,) = await fetch(connection, SQL["load"], {"deployment": deployment})
            if load["variables"] > MOST_VARIABLES or load["bytes"] > MOST_BYTES:
                raise TooManyVariables(
                    f"A deployment can have {MOST_VARIABLES} variables, and {MOST_BYTES >> 10} KB of encrypted values.",
                    "Unset some, or put large values where the crew can read them.",
                )
            await record(connection, change)

    async def unset(self, deployment: UUID, name: str, change: Change) -> bool:
        """Returns False for a variable that is not set."""
        async with self._database.transaction() as connection:
            if not await fetch(connection, SQL["unset"], {"deployment": deployment, "name": name}):
                return False
            await record(connection, change)
        return True

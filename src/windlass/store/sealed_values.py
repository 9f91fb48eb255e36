"""Reads and replaces the encrypted values of all tables, for the rotation of the master key."""

# See docs/decisions/secrets.md#a-rotation-compares-what-it-replaces

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, LiteralString

from psycopg.sql import SQL, Placeholder

from windlass.errors import WindlassError
from windlass.store.database import Store, fetch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from psycopg.sql import Composed

    from windlass.store.database import Connection

MOST_ROWS, MOST_BYTES = 200, 4 << 20
"""Of one batch."""
COMPARED = 60
"""Characters at the beginning of an encrypted value that are compared. They include its random nonce."""
NIL = "00000000-0000-0000-0000-000000000000"

COUNT = SQL(
    "SELECT substr({value}, 4, 8) AS key_id, count(*) AS values FROM {table} WHERE {value} IS NOT NULL GROUP BY 1"
)
PAGE = SQL(
    """
    WITH next AS (
        SELECT {ids} AS ids, {value} AS value, octet_length({value}) AS bytes,
               row_number() OVER (ORDER BY {order}) AS place
          FROM {table}
         WHERE ({order}) > ({after}) AND substr({value}, 4, 8) <> %(current)s
         ORDER BY {order}
         LIMIT %(rows)s
    ), summed AS (
        SELECT next.*, sum(bytes) OVER (ORDER BY place) AS so_far FROM next
    )
    SELECT ids, value FROM summed WHERE so_far - bytes < %(bytes)s ORDER BY place
    """
)
"""Returns the next values that another key encrypted: at least one, and no further one beyond `bytes`."""
REPLACE = SQL(
    "UPDATE {table} SET {column} = %(new)s WHERE ({order}) = ({after}) AND left({value}, %(compared)s) = %(old)s"
)


@dataclass(frozen=True, slots=True)
class _Place:
    """`order` are the columns of the primary key, `types` their types, `first` values below those of all rows."""

    table: LiteralString
    column: LiteralString
    order: tuple[LiteralString, ...] = ("id",)
    types: tuple[LiteralString, ...] = ("uuid",)
    first: tuple[str, ...] = (NIL,)
    value: LiteralString | None = None

    def compose(self, statement: SQL) -> Composed:
        given = [Placeholder(f"id{place}") + SQL("::") + SQL(name) for place, name in enumerate(self.types)]
        ids = SQL("ARRAY[{}]").format(SQL(", ").join(SQL("{}::text").format(SQL(name)) for name in self.order))
        return statement.format(
            table=SQL(self.table),
            column=SQL(self.column),
            value=SQL(self.value or self.column),
            ids=ids,
            order=SQL(", ").join(map(SQL, self.order)),
            after=SQL(", ").join(given),
        )


PLACES: dict[str, _Place] = {
    "settings.token_pepper": _Place(
        "settings", "value", ("name",), ("text",), ("",), "CASE name WHEN 'token_pepper' THEN value END"
    ),
    "tokens.shown_copy": _Place("tokens", "shown_copy"),
    "webhook_endpoints.address": _Place("webhook_endpoints", "address"),
    "deployments.webhook_secrets": _Place("deployments", "webhook_secrets"),
    "journal.record": _Place("journal", "record", ("kickoff_id", "number"), ("uuid", "int"), (NIL, "0")),
    "variables.value": _Place("variables", "value", ("deployment_id", "name"), ("uuid", "text"), (NIL, "")),
    "credentials.configuration": _Place("credentials", "configuration"),
    "signing_keys.key": _Place("signing_keys", "key", types=("text",), first=("",)),
}
"""Every place of encrypted values in the database, by its name in `Sealed`."""


class KeysInUse(WindlassError):  # noqa: N818 - describes the keys
    """Reports that another command changes the master keys now."""


@dataclass(frozen=True, slots=True)
class SealedRow:
    """`ids` are the columns that identify the row."""

    ids: tuple[str, ...]
    value: str


class SealedValueStore(Store):
    async def counts(self, place: str) -> dict[str, int]:
        """Returns how many values of a place each master key encrypts, by its id."""
        async with self._database.connection(patient=True) as connection:
            rows = await fetch(connection, PLACES[place].compose(COUNT))
        return {row["key_id"]: row["values"] for row in rows}

    async def page(self, place: str, current: str, after: tuple[str, ...] = ()) -> list[SealedRow]:
        """Returns the next values after `after` that another key than `current` encrypted."""
        ids = after or PLACES[place].first
        values = {**_numbered(ids), "current": current, "rows": MOST_ROWS, "bytes": MOST_BYTES}
        async with self._database.connection(patient=True) as connection:
            rows = await fetch(connection, PLACES[place].compose(PAGE), values)
        return [SealedRow(tuple(row["ids"]), row["value"]) for row in rows]

    async def replace(self, place: str, rows: Sequence[tuple[SealedRow, str]]) -> None:
        """Replaces the values, except those that have changed since they were read."""
        statement = PLACES[place].compose(REPLACE)
        async with self._database.transaction(size=sum(len(new) for _, new in rows)) as connection:
            await connection.cursor().executemany(
                statement,
                [
                    {**_numbered(row.ids), "new": new, "old": row.value[:COMPARED], "compared": COMPARED}
                    for row, new in rows
                ],
            )

    async def notify(self) -> None:
        """Makes running servers read their master keys again."""
        await self._database.execute("SELECT pg_notify('windlass_master_keys', '')")

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Raises KeysInUse when another process is in such a block."""
        async with self._database.connection(patient=True) as connection:
            if not await _locked(connection):
                raise KeysInUse("Another command changes the master keys now.", "Wait until it has ended.")
            try:
                yield
            finally:
                await connection.execute("SELECT pg_advisory_unlock_all()")


async def _locked(connection: Connection) -> bool:
    (row,) = await fetch(connection, "SELECT pg_try_advisory_lock(hashtextextended('master_keys', 0)) AS locked")
    return bool(row["locked"])


def _numbered(ids: tuple[str, ...]) -> dict[str, str]:
    return {f"id{place}": value for place, value in enumerate(ids)}

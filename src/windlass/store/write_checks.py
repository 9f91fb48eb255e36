"""Finds out whether the database accepts writes, by a write that is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from windlass import log
from windlass.errors import DatabaseUnavailable
from windlass.store.database import queries

if TYPE_CHECKING:
    from windlass.store.database import Database

SQL = queries("write_checks")
READ_ONLY = (
    "The database is read-only: it is a standby, or its default_transaction_read_only is on. Name the primary in "
    "WINDLASS_DATABASE_URL, or switch the setting off."
)
SLOW = (
    "The database does not complete a write in time: its disk is slow, a lock is held, or a synchronous standby does "
    "not answer. pg_stat_activity shows what it waits for."
)
REFUSED = "The database refuses writes{code}. The server's log has the error (database.refused)."
FAULTS = {
    "53100": "The disk of the database is full. Free some space on it, or make it larger.",
    "25006": READ_ONLY,
    "55P03": SLOW,
    "57014": SLOW,
}

logger = log.logger(__name__)


async def write_fault(database: Database) -> str | None:
    """Returns why the database accepts no writes and what to do, None if it accepts them.

    The text contains nothing of the database's own, because anybody may read it. Before the first migration, nothing is
    written: only a read-only database is found.
    """
    try:
        (found,) = await database.rows(SQL["is_read_only"], soon=True)
        if found["is_read_only"]:
            return READ_ONLY
        if found["is_migrated"]:
            await database.rows(SQL["check"], soon=True)
    except DatabaseUnavailable as error:
        cause = error.__cause__
        return SLOW if isinstance(cause, TimeoutError) else _fault_of(cause)
    except psycopg.Error as error:  # for example, the user may not write to the table
        logger.event("database.refused", error=" ".join(str(error).split()))
        return _fault_of(error)
    return None


def _fault_of(error: BaseException | None) -> str:
    code = getattr(error, "sqlstate", None)
    if code is None and not isinstance(error, psycopg.DatabaseError):
        return "The database does not answer."
    return FAULTS.get(code or "", REFUSED.format(code=f" (SQLSTATE {code})" if code else ""))

# See docs/decisions/store.md#a-digest-skips-the-replacement-of-functions
# See docs/decisions/store.md#the-database-names-the-oldest-migration-that-a-server-must-know
# See docs/decisions/store.md#a-migration-waits-two-seconds-for-the-lock-of-a-table

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import version

import psycopg

from windlass.errors import WindlassError
from windlass.store import side_job_tables
from windlass.store.database import Connection, Database, fetch, queries

LOCK = 0x77696E64  # "wind" in ASCII; one server migrates, the others wait for it
FILE = re.compile(r"(\d{4})_\w+\.sql")
CONTRACTION = re.compile(r"^-- contracts: (\d+)$", re.MULTILINE)
"""The line of a migration that removes what older servers use. A server must then know the migration with this number.

docs/development/migrations.md describes it.
"""
FUNCTIONS = "digest of the functions"
"""The name of the setting with the digest of functions/*.sql, so that a start that changes nothing replaces nothing."""
NEEDED = "needed migration"
"""The name of the setting with the number of the migration that a server must know to use the tables."""
MIGRATED_BY = "migrated by"
"""The name of the setting with the version of Windlass that migrated last."""
OLDEST_SERVER = 140000
LOCK_SECONDS = 0.5
"""The longest wait for the lock of a table. Statements of servers queue behind it. It is less than the second after
which PostgreSQL ends one of two transactions that wait for each other, which could be that of a request.
"""
TRIES = 60
"""Attempts to get the locks of all tables, with a second between two of them."""
LOCKED = ("55P03", "40P01")
"""The SQLSTATEs of a lock that was not free in time, and of a deadlock."""
HINT = "Nothing of it was kept."
HINTS: dict[str | None, str] = {
    "42501": "The user of the database's URL must be allowed to make tables. For example, make it the database's owner."
}
SQL = queries("migrate")


class MigrationError(WindlassError):
    pass


class DatabaseTooNew(MigrationError):  # noqa: N818 - describes the database
    pass


class MigrationNeeded(MigrationError):  # noqa: N818 - describes the database
    pass


class _TablesLockedError(MigrationError):
    pass


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of a database, compared with what this version of Windlass knows.

    `missing` are the migrations that are not applied. `newest` is the newest applied one, 0 in an empty database.
    `needed` is the migration that a server must know to use the tables. `migrated_by` is the version of Windlass that
    migrated last, if known. `has_side_jobs` is whether the tables of the side jobs are up to date.
    """

    missing: tuple[int, ...]
    newest: int
    needed: int
    migrated_by: str | None
    has_side_jobs: bool

    @property
    def is_too_new(self) -> bool:
        """Returns whether a newer version has removed what this one uses."""
        return self.needed > newest_known()

    @property
    def is_newer(self) -> bool:
        """Returns whether a newer version has migrated the tables. This one can use them unless they are too new."""
        return self.newest > newest_known()

    @property
    def is_complete(self) -> bool:
        return not self.missing and self.has_side_jobs

    @property
    def fault(self) -> str | None:
        """Returns why this version can't use the tables, None if it can."""
        if self.is_too_new:
            return self.refusal.message
        return None if self.is_complete else self.need.message

    @property
    def refusal(self) -> DatabaseTooNew:
        by = f" {self.migrated_by}" if self.migrated_by else ""
        return DatabaseTooNew(
            f"The database was migrated by a newer Windlass{by} (migration {self.newest}). It needs a server that "
            f"knows migration {self.needed}, and this one, {version('windlass')}, knows up to {newest_known()}.",
            "Start a newer version, restore the backup that was made before the upgrade, or use another database.",
        )

    @property
    def need(self) -> MigrationNeeded:
        what = "has no tables yet" if not self.newest else f"has migration {self.newest}"
        return MigrationNeeded(
            f"The database {what}, and Windlass {version('windlass')} needs migration {newest_known()}.",
            "Run `windlass migrate` with this version.",
        )


def newest_known() -> int:
    return max(known_migrations())


def known_migrations() -> dict[int, str]:
    """Returns the SQL of each migration by its number, in order."""
    folder = resources.files("windlass.store").joinpath("migrations")
    files = sorted((entry.name, entry) for entry in folder.iterdir() if FILE.fullmatch(entry.name))
    return {int(name[:4]): entry.read_text("utf-8") for name, entry in files}


def known_functions() -> str:
    """Returns the SQL of functions/*.sql, which creates or replaces all functions and triggers."""
    folder = resources.files("windlass.store").joinpath("functions")
    files = sorted((entry.name, entry) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return "\n".join(entry.read_text("utf-8") for _, entry in files)


def needed_migration() -> int:
    """Returns the number of the migration that a server must know to use the tables of this version."""
    found = (CONTRACTION.search(sql) for sql in known_migrations().values())
    return max((int(line[1]) for line in found if line), default=0)


async def migrate(database: Database) -> list[int]:
    """Applies the missing migrations in one transaction, under an advisory lock, and returns their numbers.

    Replaces the functions and triggers if the last server that migrated this database had others. Changes nothing in a
    database that a newer version has migrated; raises DatabaseTooNew if this version can't use it.

    Servers may use the tables meanwhile. A lock that is not free within LOCK_SECONDS ends the attempt, so that their
    statements do not wait longer behind it.
    """
    for left in reversed(range(TRIES)):
        try:
            return await _migrate(database)
        except _TablesLockedError:
            if not left:
                raise
        await asyncio.sleep(1)
    raise AssertionError


async def _migrate(database: Database) -> list[int]:
    async with database.transaction(patient=True) as connection:
        _check_server(connection)
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS * 1000:.0f}ms'")
        found = await _schema(connection)
        if found.is_too_new:
            raise found.refusal
        if found.is_newer:
            return []
        known = known_migrations()
        for number in found.missing:
            await _apply(connection, number, known[number])
        await _replace_functions(connection)
        await _bring_up_side_jobs(connection)
        await _set(connection, NEEDED, str(needed_migration()))
        await _set(connection, MIGRATED_BY, version("windlass"))
        return list(found.missing)


async def schema_of(database: Database) -> Schema:
    """Compares the tables with what this version needs.

    The functions are not compared: while servers are upgraded one by one, older servers use those of a newer version.
    """
    async with database.connection() as connection:
        return await _schema(connection)


async def _schema(connection: Connection) -> Schema:
    known = tuple(known_migrations())
    (found,) = await fetch(connection, SQL["has_tables"])
    if not found["has_tables"]:
        return Schema(known, 0, 0, None, has_side_jobs=False)
    applied = {row["number"] for row in await fetch(connection, SQL["applied"])}
    names = {"names": [NEEDED, MIGRATED_BY]}
    settings = {row["name"]: row["value"] for row in await fetch(connection, SQL["settings"], names)}
    return Schema(
        tuple(number for number in known if number not in applied),
        max(applied, default=0),
        int(settings.get(NEEDED, 0)),
        settings.get(MIGRATED_BY),
        await side_job_tables.is_up(connection),
    )


async def _bring_up_side_jobs(connection: Connection) -> None:
    try:
        await side_job_tables.bring_up(connection)
    except psycopg.Error as error:
        raise _failure("The migration of the side jobs", error) from error


async def _apply(connection: Connection, number: int, sql: str) -> None:
    try:
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations "
            "(number integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        await connection.execute(sql.encode())
    except psycopg.Error as error:
        raise _failure(f"Migration {number}", error) from error
    await connection.execute("INSERT INTO migrations (number) VALUES (%s)", (number,))


async def _replace_functions(connection: Connection) -> None:
    sql = known_functions()
    digest = hashlib.sha256(sql.encode()).hexdigest()
    (kept,) = await fetch(connection, SQL["settings"], {"names": [FUNCTIONS]}) or [{"value": None}]
    if kept["value"] == digest:
        return
    try:
        await connection.execute("SET LOCAL check_function_bodies = off")  # the files refer to each other
        await connection.execute(sql.encode())
    except psycopg.Error as error:
        raise _failure("The replacement of the functions", error) from error
    await _set(connection, FUNCTIONS, digest)


async def _set(connection: Connection, name: str, value: str) -> None:
    await connection.execute(SQL["set"], {"name": name, "value": value})


def _failure(what: str, error: psycopg.Error) -> MigrationError:
    if error.sqlstate in LOCKED:
        return _TablesLockedError(
            "The migration waits for a table that another transaction has locked. Nothing of it was kept.",
            "Find the transaction in pg_stat_activity, such as a pg_dump. Wait for it or end it, then migrate again.",
        )
    reason = " ".join(str(error).split())
    return MigrationError(f"{what} failed: {reason}.", HINTS.get(error.sqlstate, HINT))


def _check_server(connection: Connection) -> None:
    """Raises MigrationError for a server or a database that can't hold our tables."""
    if connection.info.server_version < OLDEST_SERVER:
        raise MigrationError(
            f"PostgreSQL {connection.info.server_version // 10000} is too old.",
            "Windlass needs PostgreSQL 14 or newer.",
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise MigrationError(
            f"The encoding of the database {connection.info.dbname} is {encoding}. Windlass needs UTF8.",
            "Make another database, and name it in WINDLASS_DATABASE_URL: "
            "CREATE DATABASE windlass ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0",
        )

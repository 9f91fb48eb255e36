# See docs/decisions/store.md#a-digest-skips-the-replacement-of-functions

from __future__ import annotations

import hashlib
import re
from importlib import resources

import psycopg

from windlass.errors import WindlassError
from windlass.store import side_job_tables
from windlass.store.database import Connection, Database, fetch

LOCK = 0x77696E64  # "wind" in ASCII; one server migrates, the others wait for it
FILE = re.compile(r"(\d{4})_\w+\.sql")
FUNCTIONS = "digest of the functions"
"""The name of the setting with the digest of functions/*.sql, so that a start that changes nothing replaces nothing."""
OLDEST_SERVER = 140000
HINT = "Nothing of it was kept."
HINTS: dict[str | None, str] = {
    "42501": "The user of the database's URL must be allowed to make tables. For example, make it the database's owner."
}


class MigrationError(WindlassError):
    pass


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


async def migrate(database: Database) -> list[int]:
    """Applies the missing migrations in one transaction, under an advisory lock, and returns their numbers.

    Replaces the functions and triggers if the last server that migrated this database had others.
    """
    async with database.transaction(patient=True) as connection:
        _check_server(connection)
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        applied = await _applied(connection)
        known = known_migrations()
        if unknown := applied - known.keys():
            raise MigrationError(
                f"The database was migrated by a newer Windlass (migration {max(unknown)}; "
                f"this one knows up to {max(known)}).",
                "Start that newer version, or use another database.",
            )
        missing = [number for number in known if number not in applied]
        for number in missing:
            await _apply(connection, number, known[number])
        await _replace_functions(connection)
        await _bring_up_side_jobs(connection)
        return missing


async def is_migrated(database: Database) -> bool:
    """Returns whether the tables have all that this version needs.

    The functions are not compared: while servers are upgraded one by one, older servers use those of a newer version.
    """
    async with database.connection() as connection:
        if not await _applied(connection) >= known_migrations().keys():
            return False
        return await side_job_tables.is_up(connection)


async def _applied(connection: Connection) -> set[int]:
    (found,) = await fetch(connection, "SELECT to_regclass('migrations') AS name")
    if found["name"] is None:
        return set()
    return {row["number"] for row in await fetch(connection, "SELECT number FROM migrations")}


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
    values = {"name": FUNCTIONS, "digest": digest}
    if await fetch(connection, "SELECT FROM settings WHERE name = %(name)s AND value = %(digest)s", values):
        return
    try:
        await connection.execute("SET LOCAL check_function_bodies = off")  # the files refer to each other
        await connection.execute(sql.encode())
    except psycopg.Error as error:
        raise _failure("The replacement of the functions", error) from error
    await connection.execute(
        "INSERT INTO settings (name, value) VALUES (%(name)s, %(digest)s) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        values,
    )


def _failure(what: str, error: psycopg.Error) -> MigrationError:
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

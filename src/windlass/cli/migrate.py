"""Migrates the tables of the database, or shows whether they need it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from windlass.cli.exit_codes import DATABASE_TOO_NEW, MIGRATION_NEEDED, OUT_OF_REACH
from windlass.cli.printing import json_option, notify, print_error, print_json
from windlass.errors import DatabaseUnavailable, WindlassError

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.store.migrate import Schema


@click.command
@click.option(
    "--check",
    is_flag=True,
    help="Change nothing. Exit with 5 if the database needs a migration, with 6 if it is too new for this version.",
)
@json_option
def migrate(*, check: bool, json_output: bool) -> int:
    """Bring the tables of the database up to date.

    Works on WINDLASS_DATABASE_URL, without it on the embedded database of this home. Servers may run meanwhile: those
    of the version before this one use the new tables too. All missing migrations are applied in one transaction. If it
    fails, nothing of it is kept. A second command, or a server that starts, waits for the first one.

    Exits with 0 if the tables are up to date, 4 if the database can't be reached, and 6 if a newer version has migrated
    it and this version can't use it.
    """
    from windlass.config import load
    from windlass.store.migrate import DatabaseTooNew, MigrationNeeded

    try:
        _checked(load(), json_output=json_output) if check else _migrated(load(), json_output=json_output)
    except DatabaseUnavailable as error:
        return _failed(error, OUT_OF_REACH)
    except DatabaseTooNew as error:
        return _failed(error, DATABASE_TOO_NEW)
    except MigrationNeeded as error:
        return _failed(error, MIGRATION_NEEDED)
    return 0


def _migrated(settings: Settings, *, json_output: bool) -> None:
    from windlass.administration.opening import migrate_tables

    applied, found = asyncio.run(migrate_tables(settings))
    if json_output:
        print_json(_facts(found, applied))
    if applied:
        notify(f"Applied {_named(applied)}. {_state(found)}")
    else:
        notify(_state(found))


def _checked(settings: Settings, *, json_output: bool) -> None:
    from windlass.administration.opening import schema_of_settings

    found = asyncio.run(schema_of_settings(settings))
    if json_output:
        print_json(_facts(found, []))
    if found.is_too_new:
        raise found.refusal
    if not found.is_complete:
        raise found.need
    notify(_state(found))


def _facts(found: Schema, applied: list[int]) -> dict[str, object]:
    return {
        "migration": found.newest,
        "applied": applied,
        "missing": found.missing,
        "is_complete": found.is_complete,
        "is_too_new": found.is_too_new,
        "migrated_by": found.migrated_by,
    }


def _state(found: Schema) -> str:
    if found.is_newer:
        return f"A newer Windlass has migrated the tables (migration {found.newest}). This version can use them."
    return f"The tables are up to date: migration {found.newest}."


def _named(numbers: list[int]) -> str:
    return f"migration{'s' if numbers[1:] else ''} {', '.join(map(str, numbers))}"


def _failed(error: WindlassError, code: int) -> int:
    print_error(error.message, error.hint)
    return code

"""Opens the database in psql, or prints its URL."""

from __future__ import annotations

import os
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import click

from windlass.cli.printing import notify, print_result
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from windlass.config import Settings


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.option("--url", "only_url", is_flag=True, help="Print the URL of the database, with its password.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
def db(arguments: tuple[str, ...], *, only_url: bool) -> None:
    """Open the database in psql, or print its URL.

    ARGUMENTS are psql's own, as in: windlass admin db -c "SELECT slug FROM deployments"
    """
    from windlass import config

    settings = config.load()
    if only_url:
        found = _url(settings)
        notify(
            "This URL contains the password of the database, which holds all data. Keep it out of files and command "
            "lines."
        )
        print_result(found)
    else:
        _open_psql(settings, arguments)


def _open_psql(settings: Settings, arguments: tuple[str, ...]) -> None:
    from windlass import config, hardening
    from windlass.embedded_postgres.programs import psql
    from windlass.store.database import libpq_variables

    connection, password = libpq_variables(_url(settings))
    environment = config.environment() | connection
    if password is not None:
        passwords = hardening.password_file(password)
        os.set_inheritable(passwords, True)
        environment |= hardening.password_variable(passwords)
        environment.pop("PGPASSWORD", None)  # it is for another database, and would take precedence
    outside = which("psql") if settings.database_url else None
    program = Path(outside) if outside else psql()
    os.execve(program, [program.name, *arguments], environment)  # noqa: S606 - psql replaces this process


def _url(settings: Settings) -> str:
    from windlass.embedded_postgres.postgres import running_url

    if url := settings.database_direct_url or settings.database_url:
        return url.get_secret_value()
    running = running_url(settings.home)
    if running is None:
        raise WindlassError(
            f"The database in {settings.home} does not run, because no server runs on this home.",
            "Start a server with: windlass dev PATH. Or set WINDLASS_HOME to another home, or WINDLASS_DATABASE_URL to "
            "a database.",
        )
    return running

from __future__ import annotations

import os
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import click

from windlass.cli.printing import give, say
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from windlass.config import Settings


@click.group
def command() -> None:
    """Look into the database."""


@command.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
def shell(arguments: tuple[str, ...]) -> None:
    """Open psql on the database.

    ARGUMENTS are psql's own, as in: windlass db shell -c "SELECT slug FROM deployments"
    """
    from windlass.config import crew_environment, load
    from windlass.embedded.programs import psql
    from windlass.store.libpq import variables

    settings = load()
    environment = crew_environment() | variables(_url(settings))
    outside = which("psql") if settings.database_url else None
    program = Path(outside) if outside else psql()
    os.execve(program, [program.name, *arguments], environment)  # noqa: S606 - it takes our place


@command.command
def url() -> None:
    """Print the URL of the database, with its password."""
    from windlass.config import load

    found = _url(load())
    say("This URL holds the password of the database, which holds everything: keep it out of files and command lines.")
    give(found)


def _url(settings: Settings) -> str:
    from windlass.embedded.postgres import running_url

    if settings.database_url:
        return settings.database_url.get_secret_value()
    running = running_url(settings.home)
    if running is None:
        raise WindlassError(
            f"The database in {settings.home} does not run, because no server does.",
            "Start one with: windlass dev PATH; or name another folder with WINDLASS_HOME, or a database with "
            "WINDLASS_DATABASE_URL.",
        )
    return running

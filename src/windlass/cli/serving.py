"""The options and settings of the commands that serve until a signal stops them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windlass.config import Settings


def listening_options(command: Callable[..., int]) -> Callable[..., int]:
    command = click.option(
        "--port",
        metavar="PORT",
        type=click.IntRange(0, 65535),
        help="Port to listen on, in place of WINDLASS_PORT; 0 takes a free one.",
    )(command)
    return click.option("--host", metavar="ADDRESS", help="Address to listen on, in place of WINDLASS_HOST.")(command)


def serving_settings(given: Mapping[str, Any]) -> Settings:
    """Returns the settings of the environment, overridden by the command line, and configures the log."""
    from windlass.hardening import keep_memory_private

    keep_memory_private()  # before secrets are read
    from windlass import config, log

    settings = config.load().model_copy(update={name: value for name, value in given.items() if value is not None})
    log.configure(settings.log_format, settings.log_level)
    for name in config.unknown_variables():
        notify(f"warning: {name} is no setting of Windlass. docs/settings.md lists all settings")
    return settings


def notify(line: str) -> None:
    """Prints a line. Ignores an OSError, so that a full disk or a closed terminal does not stop the server."""
    with suppress(OSError):
        click.echo(line)

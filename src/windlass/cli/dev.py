from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import click


@click.command
@click.argument("project", metavar="PATH", type=click.Path(path_type=Path))
@click.option("--host", metavar="ADDRESS", help="Address to listen on, in place of WINDLASS_HOST.")
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    help="Port to listen on, in place of WINDLASS_PORT; 0 takes a free one.",
)
def command(project: Path, host: str | None, port: int | None) -> int:
    """Serve the crew of one project, everything in one process.

    PATH is the project's folder, with its pyproject.toml. The first start makes a database and loads the project; then
    the crew's address is printed, and its tokens where the output is a terminal. Ctrl-C stops the server; kickoffs that
    it has accepted go on at the next start.
    """
    from windlass.hardening import keep_memory_private

    keep_memory_private()  # before secrets are read
    from windlass import config, log
    from windlass.wiring.dev import dev

    given = {"host": host, "port": port}
    settings = config.load().model_copy(update={name: value for name, value in given.items() if value is not None})
    log.configure(settings.log_format, settings.log_level)
    return dev(settings, project, say=_say, tokens_may_be_shown=sys.stdout.isatty())


def _say(line: str) -> None:
    """A full disk or a closed terminal behind standard output does not stop a server."""
    with suppress(OSError):
        click.echo(line)

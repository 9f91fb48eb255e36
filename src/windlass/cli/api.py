from __future__ import annotations

import click

from windlass.cli.serving import listening_options, say, serving_settings


@click.command
@listening_options
def command(host: str | None, port: int | None) -> int:
    """Serve the API of every crew, as one of many processes.

    Needs WINDLASS_DATABASE_URL, and the WINDLASS_MASTER_KEY that all processes on it share. Each crew is at
    /crews/NAME. It runs nothing itself: workers do (windlass worker). Ctrl-C or SIGTERM stops it once the requests
    under way are answered.
    """
    settings = serving_settings({"host": host, "port": port})
    from windlass.wiring.separate import serve_api

    return serve_api(settings, say=say)

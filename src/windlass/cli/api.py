from __future__ import annotations

import click

from windlass.cli.serving import listening_options, notify, serving_settings


@click.command
@listening_options
def api(host: str | None, port: int | None) -> int:
    """Serve the API of every crew, as one of many processes.

    Needs WINDLASS_DATABASE_URL, and the WINDLASS_MASTER_KEY that all processes of this database share. Each crew is at
    /crews/NAME. This process runs no kickoffs: workers do (windlass worker). Ctrl-C or SIGTERM stops it once all open
    requests are answered.
    """
    settings = serving_settings({"host": host, "port": port})
    from windlass.wiring.process import serve_api

    return serve_api(settings, notify=notify)

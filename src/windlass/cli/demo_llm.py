from __future__ import annotations

import asyncio

import click

from windlass.cli.printing import give


def loopback(_: click.Context, __: click.Parameter, value: str) -> str:
    from windlass.cli.addresses import is_loopback

    if not is_loopback(value):
        raise click.BadParameter(f"{value} is not this machine's loopback: the offline model asks nobody for a key.")
    return value


@click.command
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    callback=loopback,
    help="Loopback address to listen on.",
)
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=4010,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
def command(host: str, port: int) -> None:
    """Serve the offline model, for crews without an API key.

    It speaks OpenAI's protocol and answers without any language model (docs/offline-model.md). Ctrl-C stops it.
    """
    asyncio.run(_serve(host, port))


async def _serve(host: str, port: int) -> None:
    from windlass.api.server import HttpServer
    from windlass.embedded.offline_model import offline_model_app

    server = HttpServer(offline_model_app(), host, port)
    await server.start()
    try:
        address = f"http://{f'[{host}]' if ':' in host else host}:{server.port}/v1"
        give(f"export OPENAI_BASE_URL={address} OPENAI_API_BASE={address} OPENAI_API_KEY=any")
        await asyncio.Event().wait()
    finally:
        await server.stop()

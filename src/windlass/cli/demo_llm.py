"""Serves the offline model."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.printing import print_result

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from windlass.offline_model.faults import Seconds

STATUSES = ("429", "500", "503")


def loopback(_: click.Context, __: click.Parameter, value: str) -> str:
    from windlass.loopback import is_loopback

    if not is_loopback(value):
        raise click.BadParameter(
            f"{value} is no loopback address. The offline model checks no key, so it listens on the loopback only."
        )
    return value


def seconds(_: click.Context, __: click.Parameter, value: str) -> Seconds:
    from windlass.offline_model.faults import Seconds

    try:
        return Seconds.of(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


def a_number(_: click.Context, __: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise click.BadParameter("nan is not a number from 0 to 1.")
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
@click.option(
    "--script",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File of rules that choose the answer to a prompt, as TOML or JSON.",
)
@click.option("--strict", is_flag=True, help="A prompt that no rule of the script answers gets the error 400.")
@click.option(
    "--latency",
    metavar="SECONDS",
    default="0",
    callback=seconds,
    help="Time of each answer, such as 0.5 or 0.2-1.5. A streamed answer is spread over this time.",
)
@click.option(
    "--error-rate",
    metavar="FRACTION",
    type=click.FloatRange(0, 1),
    default=0.0,
    callback=a_number,
    help="Share of the requests that get an error, from 0 to 1.",
)
@click.option(
    "--error-status",
    "statuses",
    type=click.Choice(STATUSES),
    multiple=True,
    help="Status of such an error, by default 429. The option can be repeated.",
)
@click.option(
    "--seed",
    metavar="NUMBER",
    type=int,
    default=0,
    show_default=True,
    help="Seed of errors and latencies. With the same seed the same requests get the same ones.",
)
def demo_llm(
    host: str,
    port: int,
    *,
    script: Path | None,
    strict: bool,
    latency: Seconds,
    error_rate: float,
    statuses: tuple[str, ...],
    seed: int,
) -> None:
    """Serve the offline model, for crews without an API key.

    It implements OpenAI's protocol without a language model: chats, also streamed, with tool calls and with structured
    output, and embeddings. Ctrl-C stops it.

    With a script, crews can be tested in CI. The rules of the script are tried in order. The first rule that matches a
    prompt answers it with a text, JSON, tool calls or an error. docs/how-to/offline-model.md has an example.
    """
    if strict and not script:
        raise click.UsageError("--strict needs a script: give --script FILE.")
    if statuses and not error_rate:
        raise click.UsageError("--error-status needs an error rate: add --error-rate, such as --error-rate 0.1.")
    from windlass.offline_model.app import offline_model_app
    from windlass.offline_model.faults import Faults
    from windlass.offline_model.script import Script

    rules = Script.read(script, strict=strict) if script else None
    faults = Faults(latency, error_rate, tuple(map(int, statuses)) or (429,), seed)
    asyncio.run(_serve(offline_model_app(rules, faults), host, port))


async def _serve(app: ASGIApp, host: str, port: int) -> None:
    from windlass.api.server import HttpServer
    from windlass.loopback import http_url

    server = HttpServer(app, host, port)
    await server.start()
    try:
        address = f"{http_url(host, server.port)}/v1"
        print_result(f"export OPENAI_BASE_URL={address} OPENAI_API_BASE={address} OPENAI_API_KEY=any")
        await asyncio.Event().wait()
    finally:
        await server.stop()

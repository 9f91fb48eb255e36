"""What the commands have in common that talk to a crew: its address, the token, the form of the output."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from windlass.cli.addresses import is_loopback
from windlass.cli.printing import give, say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windlass.cli.crew_client import CrewClient

Command = TypeVar("Command", bound="Callable[..., Any]")

LONGEST_TOKEN = 4096


def crew_url(_: click.Context, __: click.Parameter, value: str) -> str:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise click.BadParameter(f"{value!r} is no address of a crew; one looks like http://127.0.0.1:8000")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise click.BadParameter("a crew's address has no user, password, ? or # in it; the token goes elsewhere.")
    return value.rstrip("/")


def crew_options(command: Command) -> Command:
    """Gives the command a URL and the options token, token_file and json_output."""
    for decorate in (
        click.option("--json-output", is_flag=True, help="Print the server's whole answer, as JSON, for programs."),
        click.option(
            "--token-file",
            type=click.File(),
            metavar="FILE",
            help="Read the token from FILE, or from standard input (-).",
        ),
        click.option(
            "--token",
            envvar="WINDLASS_TOKEN",
            show_envvar=True,
            metavar="TOKEN",
            help="The crew's token. Every user of this machine can see a command line: better set the variable.",
        ),
        click.argument("url", callback=crew_url),
    ):
        command = decorate(command)
    return command


def client_for(url: str, token: str | None, token_file: Any) -> CrewClient:
    """Raises click.UsageError when there is no token, or none that a header can hold."""
    from windlass.cli.crew_client import CrewClient
    from windlass.vault.secret import Secret

    local = is_loopback(urlsplit(url).hostname or "")
    text = (token_file.read(LONGEST_TOKEN) if token_file else token or "").strip()
    if not text:
        raise click.UsageError(f"There is no token. {_how_to_get_one(local=local)}")
    if not (text.isascii() and text.isprintable() and " " not in text):
        raise click.UsageError("What was given as the token is not one: it has spaces or unusual characters in it.")
    if url.startswith("http:") and not local:
        say("warning: http:// sends the token over the network unencrypted; use https:// where the server has it.")
    return CrewClient(url, Secret(text))


def _how_to_get_one(*, local: bool) -> str:
    if local:
        return "This machine's server prints one: export WINDLASS_TOKEN=$(windlass tokens show --kind organization)"
    return "Who runs the server can make one with `windlass tokens create`; put it into the variable WINDLASS_TOKEN."


def give_json(answer: Mapping[str, Any]) -> None:
    give(json.dumps(answer, indent=2, ensure_ascii=False))

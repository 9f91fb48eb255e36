"""The options of all commands that send requests to a crew: its URL, the token, the form of the output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from windlass.cli.printing import notify
from windlass.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.cli.crew_session import CrewClient
    from windlass.secrets.secret import Secret

Command = TypeVar("Command", bound="Callable[..., Any]")

LONGEST_TOKEN = 4096


def crew_url(_: click.Context, __: click.Parameter, value: str) -> str:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise click.BadParameter(
            f"{value!r} is no URL of a crew. Give one such as http://127.0.0.1:8000", param_hint="'URL'"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise click.BadParameter(
            "a crew's URL has no user, password, ? or #. Give the token in WINDLASS_TOKEN or with --token-file.",
            param_hint="'URL'",
        )
    return value.rstrip("/")


def crew_url_or_none(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    return None if value is None else crew_url(context, parameter, value)


@dataclass(frozen=True, slots=True)
class KickoffAt:
    """A kickoff of the crew with the base URL `url`. None means the crew that this machine's server serves."""

    url: str | None
    id: str


def kickoff_at(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> KickoffAt:
    match values:
        case (kickoff_id,):
            return KickoffAt(None, kickoff_id)
        case (url, kickoff_id):
            return KickoffAt(crew_url(context, parameter, url), kickoff_id)
    raise click.UsageError("Give a kickoff's id, or the crew's URL and then the id.", context)


answer_option = click.option(
    "--json", "--json-output", "json_output", is_flag=True, help="Print the server's whole answer, as JSON."
)


def crew_options(command: Command) -> Command:
    """Adds the argument url, which may be missing, and the options token and token_file to the command."""
    return click.argument("url", required=False, callback=crew_url_or_none)(access_options(command))


def kickoff_argument(command: Command) -> Command:
    """Adds the argument kickoff, a KickoffAt, and the options token and token_file to the command."""
    argument = click.argument("kickoff", nargs=-1, metavar="[URL] KICKOFF_ID", callback=kickoff_at)
    return argument(access_options(command))


def kickoff_options(command: Command) -> Command:
    """Adds the argument kickoff, a KickoffAt, and the options token, token_file and json_output to the command."""
    return kickoff_argument(answer_option(command))


def access_options(command: Command) -> Command:
    """Adds the options token and token_file to the command."""
    for decorate in (
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
            help="The crew's token. Every user of this machine can see a command line, so prefer the variable.",
        ),
    ):
        command = decorate(command)
    return command


patience_option = click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to retry while the server is not available, for a command that waits for an end.",
)


def watch_options(command: Command) -> Command:
    """Adds the options watch and patience to the command."""
    watch = click.option("--watch", is_flag=True, help="Follow the kickoff to its end, and print each change.")
    return watch(patience_option(command))


def client_for(url: str | None, token: str | None, token_file: Any) -> CrewClient:
    """Returns a client of the crew. Raises click.UsageError when no token is given, or one that no header can hold.

    Without a URL it is the crew of this machine's server. When no token is given, the server's own token is used.
    """
    from windlass.cli.crew_session import CrewClient

    given = given_token(token, token_file)
    if url is None:
        from windlass.cli.this_server import client_here

        return client_here(given)
    local = is_loopback(urlsplit(url).hostname or "")
    if given is None:
        raise click.UsageError(f"There is no token. {_how_to_get_one(local=local)}")
    if url.startswith("http:") and not local:
        notify("warning: http:// sends the token over the network unencrypted; use https:// where the server has it.")
    return CrewClient(url, given)


def client_at(kickoff: KickoffAt, token: str | None, token_file: Any) -> CrewClient:
    """Returns a client of the kickoff's crew, as `client_for` does."""
    if kickoff.url is not None:
        return client_for(kickoff.url, token, token_file)
    from windlass.cli.this_server import client_here

    return client_here(given_token(token, token_file), kickoff.id)


def given_token(token: str | None, token_file: Any) -> Secret | None:
    from windlass.secrets.secret import Secret

    text = (token_file.read(LONGEST_TOKEN) if token_file else token or "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isprintable() and " " not in text):
        raise click.UsageError(
            "The token is not valid: it contains spaces or characters that no token has. Check what you copied."
        )
    return Secret(text)


def _how_to_get_one(*, local: bool) -> str:
    if local:
        return "Print one of this machine's server: export WINDLASS_TOKEN=$(windlass tokens show --kind organization)"
    return "The server's operator creates one with `windlass tokens create`. Set the variable WINDLASS_TOKEN to it."

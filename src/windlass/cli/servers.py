"""Chooses the server of a command, and opens its control API with the messages and exit codes of commands."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from windlass.cli.printing import notify
from windlass.cli.profiles import Profiles, Server
from windlass.errors import WindlassError
from windlass.loopback import http_url, is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.cli.control_session import ControlSession
    from windlass.secrets.secret import Secret

Command = TypeVar("Command", bound="Callable[..., Any]")

profile_option = click.option(
    "--profile",
    metavar="NAME",
    help="The server: a profile of `windlass login URL`, or `local` for this machine's.  [env var: WINDLASS_PROFILE]",
)


def server_options(command: Command) -> Command:
    """Replaces the argument `control` of the command by the option --profile: the control API of the chosen server."""

    @wraps(command)
    def with_server(*args: Any, profile: str | None, **others: Any) -> Any:
        with control_of(chosen_server(profile)) as control:
            return command(*args, control=control, **others)

    found: Command = profile_option(with_server)  # type: ignore[assignment]  # it has the options of the command
    return found


def chosen_server(profile: str | None) -> Server:
    """Returns the server of the profile, else that of WINDLASS_URL, of the current profile, or of this WINDLASS_HOME.

    Raises WindlassError when there is none.
    """
    from windlass.config import server_of_commands

    named, url, token = server_of_commands()
    profile, given = profile or named, valid_token(token.get_secret_value()) if token else None
    if profile is None and url:
        if given is None:
            raise WindlassError(
                "WINDLASS_URL is set, and WINDLASS_API_TOKEN is not.",
                "Set it to a personal token of that server, or log in instead: windlass login URL",
            )
        return Server(url.rstrip("/"), given)
    from windlass.secrets.secret import Secret

    profiles = Profiles.load()
    name = profile or profiles.current
    found = profiles.get(name)
    options = ("--profile", name) if profile else ()
    if found is None:
        return local_server(given, options)
    return Server(found.url, Secret(found.token), name, options)


def valid_token(text: str) -> Secret:
    """Raises click.UsageError for a text that no header can hold."""
    from windlass.secrets.secret import Secret

    if not (text.isascii() and text.isprintable() and " " not in text):
        raise click.UsageError(
            "The token is not valid: it contains spaces or characters that no token has. Check what you copied."
        )
    return Secret(text)


def demand_local() -> None:
    """Raises WindlassError when the chosen server is another machine's: the command opens this machine's database."""
    from windlass.config import server_of_commands

    named, url, _ = server_of_commands()
    profiles = Profiles.load()
    if (url and named is None) or profiles.get(named or profiles.current) is not None:
        raise WindlassError(
            "This command works on the server's own machine, and another server is chosen.",
            "For the server of this machine: windlass profiles use local, and unset WINDLASS_URL and WINDLASS_PROFILE.",
        )


def local_server(token: Secret | None, options: tuple[str, ...] = ()) -> Server:
    """Returns the server that runs on this WINDLASS_HOME or answers for this WINDLASS_DATABASE_URL.

    Without a token, it is the one that commands on the server's own machine use. Raises NoServerHere.
    """
    from windlass.cli.this_server import NoServerHere, administer, running_server
    from windlass.config import load

    settings = load()
    running = running_server(settings)
    if running is None and settings.database_url is None:
        raise NoServerHere(
            f"No server runs on {settings.home}.",
            "Start one with `windlass serve`, or log in to another one with `windlass login URL`. For a server with "
            "another home, set WINDLASS_HOME.",
        )
    url, served = running or (http_url(settings.host, settings.port), [])
    token = token or administer(settings, lambda opened: opened.tokens.command_line_token())
    return Server(url, token, options=options, served=tuple(served))


def control_of(server: Server) -> ControlSession:
    """Returns the control API of the server. Warns when the token would cross the network unencrypted."""
    from windlass.cli.control_session import ControlSession

    if server.url.startswith("http:") and not is_loopback(urlsplit(server.url).hostname or ""):
        notify("warning: http:// sends the token over the network unencrypted; use https:// where the server has it.")
    return ControlSession(server)

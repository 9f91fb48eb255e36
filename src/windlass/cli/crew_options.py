"""The options of all commands that send requests to a crew: the crew, the token, the form of the output."""

# See docs/decisions/commands.md#a-crew-is-found-by-its-name

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import click

from windlass.cli.completion import complete_crew, complete_kickoff
from windlass.cli.printing import notify
from windlass.cli.servers import chosen_server, control_of, profile_option, valid_token
from windlass.errors import WindlassError
from windlass.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable
    from urllib.parse import SplitResult

    from windlass.cli.crew_session import CrewClient
    from windlass.cli.profiles import Server
    from windlass.client import Refused
    from windlass.secrets.secret import Secret

Command = TypeVar("Command", bound="Callable[..., Any]")

LONGEST_TOKEN = 4096
MOST_NAMED = 10
"""The most crews that a message names."""


def crew_url(_: click.Context, __: click.Parameter, value: str) -> str:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        instead = (
            "Give inputs as JSON with --inputs-json"
            if value.startswith("{")
            else "Give one such as http://127.0.0.1:8000"
        )
        raise click.BadParameter(f"{value!r} is no URL of a crew. {instead}", param_hint="'URL'")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise click.BadParameter(
            "a crew's URL has no user, password, ? or #. Give the token in WINDLASS_TOKEN or with --token-file.",
            param_hint="'URL'",
        )
    return value.rstrip("/")


def crew_url_or_none(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    return None if value is None else crew_url(context, parameter, value)


@dataclass(frozen=True, slots=True)
class Access:
    """How a command reaches a crew: the token that was given, and for a crew without a URL its name and its server."""

    token: str | None = None
    token_file: Any = None
    deployment: str | None = None
    profile: str | None = None

    def given_token(self) -> Secret | None:
        """Raises click.UsageError for a token that no header can hold."""
        text = (self.token_file.read(LONGEST_TOKEN) if self.token_file else self.token or "").strip()
        return valid_token(text) if text else None


@dataclass(frozen=True, slots=True)
class KickoffAt:
    """A kickoff of the crew with the base URL `url`. None means a crew of the chosen server."""

    url: str | None
    id: str


def kickoff_at(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> KickoffAt:
    match values:
        case (url,) if "://" in url:
            raise click.UsageError(
                "Give a kickoff's id after the URL. `windlass kickoffs list URL` lists them.", context
            )
        case (kickoff_id,):
            return KickoffAt(None, kickoff_id)
        case (url, kickoff_id):
            return KickoffAt(crew_url(context, parameter, url), kickoff_id)
    raise click.UsageError("Give a kickoff's id, or the crew's URL and then the id.", context)


answer_option = click.option(
    "--json", "--json-output", "json_output", is_flag=True, help="Print the server's whole answer, as JSON."
)


def crew_options(command: Command) -> Command:
    """Adds the argument url, which may be missing, and the options of `access_options` to the command."""
    return click.argument("url", required=False, callback=crew_url_or_none)(access_options(command))


def kickoff_argument(command: Command) -> Command:
    """Adds the argument kickoff, a KickoffAt, and the options of `access_options` to the command."""
    argument = click.argument(
        "kickoff", nargs=-1, metavar="[URL] KICKOFF_ID", callback=kickoff_at, shell_complete=complete_kickoff
    )
    return argument(access_options(command))


def kickoff_options(command: Command) -> Command:
    """Adds the argument kickoff, a KickoffAt, the options of `access_options` and json_output to the command."""
    return kickoff_argument(answer_option(command))


def access_options(command: Command) -> Command:
    """Adds options that the command gets as its argument `access`."""

    @wraps(command)
    def with_access(
        *args: Any,
        token: str | None,
        token_file: Any,
        deployment: str | None,
        profile: str | None,
        **others: Any,
    ) -> Any:
        return command(*args, access=Access(token, token_file, deployment, profile), **others)

    found: Any = with_access
    for decorate in (
        profile_option,
        click.option(
            "--deployment",
            metavar="NAME",
            shell_complete=complete_crew,
            help="The crew of the server, in place of its URL.",
        ),
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
        found = decorate(found)
    result: Command = found
    return result


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


def client_for(url: str | None, access: Access) -> CrewClient:
    """Returns a client of the crew with this base URL. Without a URL, it is a crew of the chosen server."""
    return client_at(KickoffAt(url, ""), access)


def client_at(kickoff: KickoffAt, access: Access) -> CrewClient:
    """Returns a client of the kickoff's crew.

    Raises click.UsageError when no token is given for a URL, or one that no header can hold. Without a URL, the crew is
    found on the chosen server, and its token is that of the server by default.
    """
    token, url = access.given_token(), kickoff.url
    if url is None:
        return _crew_of_server(access, token, kickoff.id)
    from windlass.cli.crew_session import CrewClient

    if access.deployment:
        raise click.UsageError("Give the crew's URL or --deployment, not both.")
    local = is_loopback(urlsplit(url).hostname or "")
    if token is None:
        token = _token_of_profile(url)
    if token is None:
        other = _other_name_of_this_machine(url) if local else ""
        raise click.UsageError(f"There is no token. {other or _how_to_get_one(local=local)}")
    if url.startswith("http:") and not local:
        notify("warning: http:// sends the token over the network unencrypted; use https:// where the server has it.")
    return CrewClient(url, token)


def _crew_of_server(access: Access, token: Secret | None, kickoff_id: str) -> CrewClient:
    """Returns a client of the crew `access.deployment`, of the kickoff's crew, or of the only one of the server.

    Without a token, uses that of the server. Raises WindlassError when the crew is not certain.
    """
    from windlass.cli.crew_session import CrewClient
    from windlass.cli.this_server import NoServerHere
    from windlass.client import NotFound, Unauthorized

    try:
        server = chosen_server(access.profile)
    except NoServerHere as error:
        error.hint = (
            "Give the crew's URL (before the id of a kickoff), start a server with `windlass dev PATH` or `windlass "
            "serve`, or log in to one with `windlass login URL`. For a server with another home, set WINDLASS_HOME."
        )
        raise
    kickoff = _kickoff(server, kickoff_id) if kickoff_id and not access.deployment else {}
    slug = str(access.deployment or kickoff.get("deployment") or _only_crew(server))
    words = server.options if kickoff_id else (*server.options, *(("--deployment", slug) if access.deployment else ()))
    not_of_crew = f"The token of WINDLASS_TOKEN or --token is not one of {slug}. Without it, the command uses yours."
    hints: dict[type[Refused], str] = {Unauthorized: not_of_crew if token else server.login_again}
    if not kickoff_id:
        hints[NotFound] = "A crew can be used once it has a version. `windlass deployments list` shows the crews."
    client = CrewClient(f"{server.url}/crews/{slug}", token or server.token, words, hints)
    client.actors = {name: kickoff[name] for name in ("started_by", "stopped_by") if kickoff.get(name)}
    return client


def _kickoff(server: Server, kickoff_id: str) -> dict[str, Any]:
    with control_of(server) as control:
        found: dict[str, Any] = control.get("kickoffs", kickoff_id)
    return found


def _only_crew(server: Server) -> str:
    if len(server.served) == 1:
        return server.served[0]
    with control_of(server) as control:
        slugs = [str(one["slug"]) for one in control.get("deployments", limit=MOST_NAMED + 1)["items"]]
    if not slugs:
        from windlass.cli.this_server import NO_CREW

        raise WindlassError("There is no crew on this server yet.", NO_CREW)
    if len(slugs) > 1:
        names = ", ".join(slugs[:MOST_NAMED]) + (" and more" if len(slugs) > MOST_NAMED else "")
        raise WindlassError(
            f"The server {server.url} has several crews: {names}.", "Choose one with --deployment NAME."
        )
    return slugs[0]


def _token_of_profile(url: str) -> Secret | None:
    """Returns the token of the profile whose server has the URL. The current profile precedes the others.

    Compares scheme, host and port as a whole, so that no other server gets the token.
    """
    from windlass.cli.profiles import Profiles

    loaded = Profiles.load()
    names = sorted(loaded.profiles, key=lambda name: name != loaded.current)
    found = (loaded.profiles[name] for name in names if is_of_server(url, loaded.profiles[name].url))
    first = next(found, None)
    return None if first is None else valid_token(first.token)


def _other_name_of_this_machine(url: str) -> str:
    """Returns what to do where a profile has another name of this machine with the same port, such as localhost.

    Its token is not sent: another program of the machine may listen on that port at another address.
    """
    from windlass.cli.profiles import Profiles

    given = urlsplit(url)
    for name, profile in sorted(Profiles.load().profiles.items()):
        server = urlsplit(profile.url)
        there = given._replace(netloc=server.netloc).geturl()
        if is_loopback(server.hostname or "") and _port(given) == _port(server) and is_of_server(there, profile.url):
            return f"The profile {name} has one for {profile.url}: give the URL with that address."
    return ""


def is_of_server(url: str, server: str) -> bool:
    one, other = urlsplit(url), urlsplit(server)
    below = other.path.rstrip("/")
    if (one.scheme, one.hostname, _port(one)) != (other.scheme, other.hostname, _port(other)):
        return False
    return ".." not in unquote(one.path).split("/") and (one.path == below or one.path.startswith(f"{below}/"))


def _port(parts: SplitResult) -> int | None:
    return parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _how_to_get_one(*, local: bool) -> str:
    if local:
        return "Print one of this machine's server: export WINDLASS_TOKEN=$(windlass tokens show --kind organization)"
    return "The server's operator creates one with `windlass tokens create`. Set the variable WINDLASS_TOKEN to it."

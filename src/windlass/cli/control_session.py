"""The control API of a server for the commands, with their errors and exit codes, and the crew that they find by it."""

# See docs/decisions/commands.md#commands-use-the-control-api

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from windlass.cli.crew_session import CrewClient, RequestRefused, cli_errors
from windlass.cli.servers import chosen_server, control_of
from windlass.cli.this_server import NO_CREW, NoServerHere
from windlass.client import NotACrew, NotFound, Refused, Unauthorized
from windlass.client.control import Control
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from windlass.cli.crew_options import Access
    from windlass.cli.servers import Server
    from windlass.client.protocol import Exchange
    from windlass.secrets.secret import Secret

Parsed = TypeVar("Parsed")

MOST_NAMED = 10
"""The most crews that a message names."""


class ControlSession(Control):
    """A client of the control API that raises the errors of commands, with what to do about a refused token."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.url, server.token.reveal())
        self.server = server

    def perform(self, exchange: Exchange[Parsed]) -> Parsed:
        with cli_errors():
            try:
                answer: Any = super().perform(exchange)
            except Unauthorized as error:
                error.hint = self.server.login_again
                raise
        checked: Parsed = _checked(answer)
        return checked


class _Facts(dict[str, Any]):
    """An object of an answer. A missing member is an error of the server, not of this program."""

    def __missing__(self, name: str) -> Any:
        cause = NotACrew(200, f"The server's answer has no `{name}`.", "Check the address, and the server's version.")
        raise RequestRefused(cause, cause.hint)


def _checked(value: Any) -> Any:
    if isinstance(value, dict):
        return _Facts({name: _checked(one) for name, one in value.items()})
    return [_checked(one) for one in value] if isinstance(value, list) else value


def crew_of_server(access: Access, token: Secret | None, kickoff_id: str) -> CrewClient:
    """Returns a client of the crew `access.deployment`, of the kickoff's crew, or of the only one of the server.

    Without a token, uses that of the server. Raises WindlassError when the crew is not certain.
    """
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
        raise WindlassError("There is no crew on this server yet.", NO_CREW)
    if len(slugs) > 1:
        names = ", ".join(slugs[:MOST_NAMED]) + (" and more" if len(slugs) > MOST_NAMED else "")
        raise WindlassError(
            f"The server {server.url} has several crews: {names}.", "Choose one with --deployment NAME."
        )
    return slugs[0]

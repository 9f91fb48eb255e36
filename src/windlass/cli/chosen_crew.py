"""Finds the crew of a command on the chosen server: by its name, by the kickoff, or because there is only one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.cli.crew_session import CrewClient
from windlass.cli.servers import chosen_server, control_of
from windlass.cli.this_server import NoServerHere
from windlass.client import NotFound, Refused, Unauthorized
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from windlass.cli.crew_options import Access
    from windlass.cli.servers import Server
    from windlass.secrets.secret import Secret

MOST_NAMED = 10
"""The most crews that a message names."""


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
    slug = access.deployment or (_crew_of(server, kickoff_id) if kickoff_id else _only_crew(server))
    words = server.options if kickoff_id else (*server.options, *(("--deployment", slug) if access.deployment else ()))
    not_of_crew = f"The token of WINDLASS_TOKEN or --token is not one of {slug}. Without it, the command uses yours."
    hints: dict[type[Refused], str] = {Unauthorized: not_of_crew if token else server.login_again}
    if not kickoff_id:
        hints[NotFound] = "A crew can be used once it has a version. `windlass deployments list` shows the crews."
    return CrewClient(f"{server.url}/crews/{slug}", token or server.token, words, hints)


def _crew_of(server: Server, kickoff_id: str) -> str:
    with control_of(server) as control:
        return str(control.get("kickoffs", kickoff_id)["deployment"])


def _only_crew(server: Server) -> str:
    if len(server.served) == 1:
        return server.served[0]
    with control_of(server) as control:
        slugs = [str(one["slug"]) for one in control.get("deployments", limit=MOST_NAMED + 1)["items"]]
    if not slugs:
        raise WindlassError("There is no crew on this server yet.", "Deploy one with: windlass deploy PATH")
    if len(slugs) > 1:
        names = ", ".join(slugs[:MOST_NAMED]) + (" and more" if len(slugs) > MOST_NAMED else "")
        raise WindlassError(
            f"The server {server.url} has several crews: {names}.", "Choose one with --deployment NAME."
        )
    return slugs[0]

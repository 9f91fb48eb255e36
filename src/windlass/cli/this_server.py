"""Finds the crew that this machine's server serves, for commands without a URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.cli.addresses import running_server
from windlass.cli.admin_session import administer, chosen_deployment
from windlass.cli.crew_session import CrewClient
from windlass.cli.exit_codes import OUT_OF_REACH
from windlass.config import load
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.secrets.secret import Secret
    from windlass.wiring.infrastructure import Administration


class NoServerHere(WindlassError):  # noqa: N818 - a state of the server
    exit_code = OUT_OF_REACH


def client_here(token: Secret | None) -> CrewClient:
    """Returns a client of the crew. Raises NoServerHere when no server runs on this WINDLASS_HOME."""
    settings = load()
    running = running_server(settings)
    if running is None:
        raise NoServerHere(
            f"No server runs on {settings.home}.",
            "Give the crew's URL before the kickoff's id, or set WINDLASS_HOME to the server's home.",
        )
    address, slug = running
    return CrewClient(f"{address}/crews/{slug}", token or _own_token(settings, slug), here=slug)


def _own_token(settings: Settings, slug: str) -> Secret:
    async def shown(opened: Administration) -> Secret:
        crew = await chosen_deployment(opened.deployments, slug)
        return (await opened.tokens.show(crew)).organization

    return administer(settings, shown)

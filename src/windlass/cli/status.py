from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windlass.cli.crew_options import KickoffAt, client_at, kickoff_options
from windlass.cli.printing import notify
from windlass.cli.progress import changes
from windlass.cli.watch_options import show, watch_options

if TYPE_CHECKING:
    from windlass.cli.crew_session import CrewClient
    from windlass.cli.progress import Status


@click.command
@kickoff_options
@watch_options
def command(
    kickoff: KickoffAt, token: str | None, token_file: Any, patience: float, *, watch: bool, json_output: bool
) -> int:
    """Show the progress of a kickoff, or its result.

    The final output goes to standard output, everything else to standard error. Exits with 1 when the kickoff failed.
    Without URL, the kickoff belongs to the crew that this machine's server serves.
    """
    with client_at(kickoff, token, token_file) as crew:
        status = _followed(crew, kickoff.id, patience) if watch else _once(crew, kickoff.id, quiet=json_output)
    return show(status, json_output=json_output)


def _followed(crew: CrewClient, kickoff_id: str, patience: float) -> Status:
    from windlass.cli.follow import follow

    return follow(crew, kickoff_id, patience=patience)


def _once(crew: CrewClient, kickoff_id: str, *, quiet: bool) -> Status:
    status = crew.status(kickoff_id)
    for line in () if quiet else changes(None, status):
        notify(line)
    return status

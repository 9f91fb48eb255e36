from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from windlass.cli.crew_options import KickoffAt, client_at, give_json, kickoff_options
from windlass.cli.explaining import explain
from windlass.cli.printing import give


@click.command
@kickoff_options
def command(kickoff: KickoffAt, token: str | None, token_file: Any, *, json_output: bool) -> None:
    """Tell what a kickoff waits for, what it does, or why it ended.

    And what to do about it. Without URL, the kickoff is one of the crew that this machine's server serves.
    """
    with client_at(kickoff, token, token_file) as crew:
        status = crew.status(kickoff.id)
    if json_output:
        give_json(status)
        return
    for line in explain(status, datetime.now(UTC)):
        give(line)

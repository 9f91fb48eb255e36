from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from windlass.cli.crew_options import KickoffAt, client_at, give_json, kickoff_options
from windlass.cli.describing import describe
from windlass.cli.printing import give


@click.command
@kickoff_options
def command(kickoff: KickoffAt, token: str | None, token_file: Any, *, json_output: bool) -> None:
    """Tell all about a kickoff: its tasks, and each attempt.

    How it stands and why, its tasks with their times, the tokens that it used, and of each attempt when and where it
    ran, how it ended, and what it took from the journal, so that nothing was paid for twice. Without URL, the kickoff
    is one of the crew that this machine's server serves.
    """
    with client_at(kickoff, token, token_file) as crew:
        status = crew.status(kickoff.id)
        attempts = crew.attempts(kickoff.id).get("attempts") or []
    if json_output:
        give_json({**status, "attempts": attempts})
        return
    for line in describe(status, attempts, datetime.now(UTC)):
        give(line)

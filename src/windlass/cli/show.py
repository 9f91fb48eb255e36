from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from windlass.cli.crew_options import KickoffAt, client_at, kickoff_options
from windlass.cli.printing import print_json, print_result
from windlass.cli.show_text import describe


@click.command
@kickoff_options
def command(kickoff: KickoffAt, token: str | None, token_file: Any, *, json_output: bool) -> None:
    """Show a kickoff in full, with its tasks and attempts.

    Prints its state with the reason, its tasks with their times, and the tokens that it used. For each attempt, prints
    when and where it ran, how it ended, and which steps it took from the journal instead of paying for them again.
    Without URL, the kickoff belongs to the crew that this machine's server serves.
    """
    with client_at(kickoff, token, token_file) as crew:
        status = crew.status(kickoff.id)
        attempts = crew.attempts(kickoff.id).get("attempts") or []
    if json_output:
        print_json({**status, "attempts": attempts})
        return
    for line in describe(status, attempts, datetime.now(UTC)):
        print_result(line)

from __future__ import annotations

from typing import Any

import click

from windlass.cli.crew_options import KickoffAt, client_at, give_json, kickoff_options
from windlass.cli.printing import say
from windlass.cli.progress import ending
from windlass.cli.watch_options import patience_option


@click.command
@kickoff_options
@click.option("--wait", is_flag=True, help="Wait until the kickoff has ended, and tell how.")
@patience_option
def command(
    kickoff: KickoffAt, token: str | None, token_file: Any, patience: float, *, wait: bool, json_output: bool
) -> None:
    """Stop a kickoff.

    One that waits never starts; one that runs is told to come to its end, and killed with all of its processes a few
    seconds later. Stopping twice is stopping once. Without URL, the kickoff is one of the crew that this machine's
    server serves.
    """
    with client_at(kickoff, token, token_file) as crew:
        answer = crew.stop(kickoff.id)
        if wait or not json_output:
            say(str(answer.get("message")))
        if wait:
            from windlass.cli.follow import follow

            answer = follow(crew, kickoff.id, patience=patience)
            say(ending(answer))
    if json_output:
        give_json(answer)

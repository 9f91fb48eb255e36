from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from windlass.cli.crew_options import KickoffAt, client_at, kickoff_options
from windlass.cli.printing import print_json, print_result
from windlass.cli.why_text import explain


@click.command
@kickoff_options
def command(kickoff: KickoffAt, token: str | None, token_file: Any, *, json_output: bool) -> None:
    """Explain why a kickoff waits, what it does, or why it ended.

    Also prints what to do next. Without URL, the kickoff belongs to the crew that this machine's server serves.
    """
    with client_at(kickoff, token, token_file) as crew:
        status = crew.status(kickoff.id)
    if json_output:
        print_json(status)
        return
    for line in explain(status, datetime.now(UTC)):
        print_result(line)

"""Shows the events of one kickoff."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.crew_options import Access, KickoffAt, client_at, kickoff_argument, patience_option
from windlass.cli.log_text import LogText
from windlass.cli.printing import notify, print_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass.cli.crew_session import CrewClient

PAGE = 500
PAUSE = 0.5
"""Seconds between two requests for new events."""


@click.command
@kickoff_argument
@click.option("-f", "--follow", is_flag=True, help="Print new events until the kickoff has ended.")
@click.option("--json", "json_output", is_flag=True, help="Print each event whole, as one line of JSON.")
@patience_option
def logs(kickoff: KickoffAt, access: Access, patience: float, *, follow: bool, json_output: bool) -> None:
    """Show what a kickoff did: its events, oldest first.

    Prints the tasks, agents, model calls with their prompts and answers, tools, printed lines, and the traceback of a
    failed run. Times are UTC. Events are kept after the run (docs/retention.md). Without URL, the kickoff is looked
    up on the chosen server.
    """
    text = LogText()
    with client_at(kickoff, access) as crew:
        for event in _events(crew, kickoff.id, patience=patience if follow else None):
            for line in [json.dumps(event, ensure_ascii=False)] if json_output else text.lines(event):
                print_result(line)


def _events(crew: CrewClient, kickoff_id: str, *, patience: float | None) -> Iterator[dict[str, Any]]:
    """Yields the stored events. With `patience` in seconds, goes on until the kickoff has ended."""
    from windlass.cli.follow import Retrying

    retrying = Retrying(patience or 0.0, notify)
    after = 0
    while True:
        page = retrying.request(partial(crew.events, kickoff_id, after=after, limit=PAGE))
        yield from page["events"]
        after = page["next"]
        if page["more"]:
            continue
        if patience is None or page["status"] in {"completed", "error"}:
            return
        time.sleep(PAUSE)

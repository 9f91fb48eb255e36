"""Shows the events of one kickoff."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.crew_options import Access, KickoffAt, client_at, kickoff_argument, patience_option
from windlass.cli.log_text import LogText
from windlass.cli.printing import notify, print_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass.cli.crew_session import CrewClient
    from windlass.client import CrewError

PAGE = 500


@click.command
@kickoff_argument
@click.option("-f", "--follow", is_flag=True, help="Print new events until the kickoff has ended.")
@click.option("--json", "json_output", is_flag=True, help="Print each event whole, as one line of JSON.")
@patience_option
def logs(kickoff: KickoffAt, access: Access, patience: float, *, follow: bool, json_output: bool) -> None:
    """Show what a kickoff did: its events, oldest first.

    Prints the tasks, agents, model calls with their prompts and answers, tools, printed lines, and the traceback of a
    failed run. Times are UTC; a line has the date where it changes, and first if it is not today's. Events are kept
    after the run (docs/reference/retention.md). Without URL, the kickoff is looked up on the chosen server.
    """
    text = LogText(datetime.now(UTC).date())
    with client_at(kickoff, access) as crew:
        for event in _followed(crew, kickoff.id, patience) if follow else _stored(crew, kickoff.id):
            for line in [json.dumps(event, ensure_ascii=False)] if json_output else text.lines(event):
                print_result(line)


def _stored(crew: CrewClient, kickoff_id: str) -> Iterator[dict[str, Any]]:
    after, more = 0, True
    while more:
        page = crew.events(kickoff_id, after=after, limit=PAGE)
        yield from page["events"]
        after, more = page["next"], page["more"]


def _followed(crew: CrewClient, kickoff_id: str, patience: float) -> Iterator[dict[str, Any]]:
    """Yields the events as they happen, until the kickoff has ended."""
    away = False

    def paused(seconds: float, error: CrewError) -> None:
        nonlocal away
        if not away:
            notify(f"The server is not available, trying again for {patience:g} s: {error.message}")
        away = True
        time.sleep(seconds)

    for event in crew.followed_events(kickoff_id, patience, paused):
        if away:
            notify("The server answers again.")
            away = False
        yield event.answer

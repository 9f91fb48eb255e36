from __future__ import annotations

import sys
from typing import Any

import click

from windlass.cli.crew_options import KickoffAt, access_options, answer_option, client_at, crew_url
from windlass.cli.printing import notify, print_json


@click.group
def kickoffs() -> None:
    """Delete kickoffs for good."""


@kickoffs.command
@click.argument("places", nargs=-1, required=True, metavar="[URL] KICKOFF_ID...")
@access_options
@answer_option
@click.option("--stop", is_flag=True, help="First stop kickoffs that have not ended.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def delete(
    context: click.Context,
    /,
    places: tuple[str, ...],
    token: str | None,
    token_file: Any,
    *,
    stop: bool,
    yes: bool,
    json_output: bool,
) -> None:
    """Delete kickoffs for good, with all of their data.

    Deletes their inputs, results, events, journals, attempts, task records and idempotency keys. Only a backup can
    restore them. The token needs the scope admin. Without URL, the kickoffs belong to the crew that this machine's
    server serves.
    """
    url = crew_url(context, context.command.params[0], places[0]) if "://" in places[0] else None
    kickoffs = places[1:] if url else places
    if not kickoffs:
        raise click.UsageError("Give the id of a kickoff after the crew's URL.", context)
    confirm(f"Delete {len(kickoffs)} kickoff{'s' if len(kickoffs) > 1 else ''} for good?", yes=yes)
    answers = []
    with client_at(KickoffAt(url, ""), token, token_file) as crew:
        for kickoff in kickoffs:
            answers.append(crew.delete(kickoff, stop=stop))
            if not json_output:
                notify(f"{kickoff}: deleted.")
    if json_output:
        print_json({"deleted": answers})


def confirm(question: str, *, yes: bool) -> None:
    """Asks for confirmation, unless `yes` is set. Raises click.Abort when the person declines.

    Raises click.UsageError when standard input is no terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("This can't be undone. Confirm it with --yes.")
    click.confirm(question, abort=True, err=True)

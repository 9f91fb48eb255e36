"""Stops one kickoff, or all open ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windlass.cli.crew_options import (
    Access,
    KickoffAt,
    access_options,
    answer_option,
    client_at,
    crew_url,
    kickoff_at,
    patience_option,
)
from windlass.cli.lists import moment
from windlass.cli.printing import notify, print_json
from windlass.cli.progress import ending

if TYPE_CHECKING:
    from windlass.cli.crew_session import CrewClient

FILTERS = ("state", "user", "before")


@click.command
@click.argument("places", nargs=-1, metavar="[URL] [KICKOFF_ID]")
@access_options
@answer_option
@click.option("--all", "all_", is_flag=True, help="Stop all open kickoffs of the crew that the token may stop.")
@click.option("--user", metavar="NAME", help="With --all: only kickoffs that this user started.")
@click.option(
    "--state",
    type=click.Choice(["PENDING", "STARTED", "PENDING_HUMAN_INPUT"]),
    help="With --all: only kickoffs in this state.",
)
@click.option(
    "--before", metavar="TIME", callback=moment, help="With --all: only kickoffs that were created until this time."
)
@click.option("--wait", is_flag=True, help="Wait until the kickoff has ended, and print how.")
@patience_option
@click.pass_context
def stop(
    context: click.Context,
    /,
    places: tuple[str, ...],
    access: Access,
    patience: float,
    *,
    all_: bool,
    wait: bool,
    json_output: bool,
    **filters: Any,
) -> None:
    """Stop a kickoff, or all open ones with --all.

    A waiting kickoff never starts. A running one is asked to end, and killed with all of its processes a few seconds
    later. A second stop changes nothing. Without URL, the kickoff is looked up on the chosen server.

    With --all, give no KICKOFF_ID. `windlass stop --all --user NAME` stops all kickoffs of a user.
    """
    if not all_ and any(filters.values()):
        raise click.UsageError("--user, --state and --before are for --all.", context)
    if all_ and wait:
        raise click.UsageError("--wait is for one kickoff.", context)
    parameter = context.command.params[0]
    kickoff = _crew_at(context, parameter, places) if all_ else kickoff_at(context, parameter, places)
    with client_at(kickoff, access) as crew:
        if all_:
            answer = crew.stop_all(**filters)
            _notify(answer, json_output=json_output)
        else:
            answer = crew.stop(kickoff.id)
            _notify(answer, json_output=json_output and not wait)
            answer = _ended(crew, kickoff.id, patience) if wait else answer
    if json_output:
        print_json(answer)


def _crew_at(context: click.Context, parameter: click.Parameter, places: tuple[str, ...]) -> KickoffAt:
    if len(places) > 1:
        raise click.UsageError("With --all, give only the crew's URL, or no argument.", context)
    return KickoffAt(crew_url(context, parameter, places[0]) if places else None, "")


def _notify(answer: dict[str, Any], *, json_output: bool) -> None:
    if not json_output:
        notify(str(answer.get("message")))


def _ended(crew: CrewClient, kickoff_id: str, patience: float) -> dict[str, Any]:
    from windlass.cli.follow import follow

    answer = follow(crew, kickoff_id, patience=patience)
    notify(ending(answer))
    return answer

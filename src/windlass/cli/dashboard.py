"""Opens the dashboard of a server."""

from __future__ import annotations

import sys
from uuid import UUID

import click

from windlass.cli.completion import complete_crew_or_kickoff
from windlass.cli.control_session import ControlSession  # noqa: TC001 - click needs no types, readers do
from windlass.cli.printing import notify, print_result
from windlass.cli.servers import server_options


@click.command("open")
@click.argument("place", required=False, metavar="[CREW|KICKOFF_ID]", shell_complete=complete_crew_or_kickoff)
@click.option("--print", "only_print", is_flag=True, help="Print the address, and start no browser.")
@server_options
def open(place: str | None, *, control: ControlSession, only_print: bool) -> None:  # noqa: A001 - the command's name
    """Open the dashboard, or the page of a crew or a kickoff.

    Prints the address, and starts the browser of this machine if the output is a terminal. The dashboard asks for a
    sign-in: `windlass admin users link NAME` makes a link for it.
    """
    url = f"{control.address}/ui{path_of(control, place)}"
    print_result(url)
    if not only_print and sys.stdout.isatty() and click.launch(url) != 0:
        notify("No browser was started here: open the address in one.")


def path_of(control: ControlSession, place: str | None) -> str:
    """Returns the path below /ui. Raises RequestRefused for a crew or a kickoff that the server does not have."""
    if place is None:
        return "/"
    try:
        kickoff = str(UUID(place))
    except ValueError:
        control.get("deployments", place)
        return f"/crews/{place}"
    control.get("kickoffs", kickoff)
    return f"/executions/{kickoff}"

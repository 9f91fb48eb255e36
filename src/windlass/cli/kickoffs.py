"""Lists the kickoffs of a crew, and deletes kickoffs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.completion import complete_kickoff
from windlass.cli.crew_options import (
    Access,
    KickoffAt,
    access_options,
    answer_option,
    client_at,
    client_for,
    crew_options,
    crew_url,
)
from windlass.cli.lists import ListByDefault, in_query, limit_option, period_options, print_page, second
from windlass.cli.printing import notify, print_json
from windlass.cli.servers import chosen_server, control_of

if TYPE_CHECKING:
    from datetime import datetime

    from windlass.cli.crew_session import CrewClient
    from windlass.cli.profiles import Server

STATES = ("PENDING", "STARTED", "PENDING_HUMAN_INPUT", "SUCCESS", "FAILED")
OF_ALL = ("KICKOFF", "CREW", "VERSION", "STATE", "CREATED", "ENDED", "USER")
HEADINGS = ("KICKOFF", "STATE", "CREATED", "SECONDS", "TOKENS", "USER", "ERROR")
LARGEST_PAGE = 200
LONGEST_ERROR = 60


@click.group(cls=ListByDefault)
def kickoffs() -> None:
    """List kickoffs, or delete some for good.

    Without a command it lists: `windlass kickoffs --state FAILED`.
    """


@kickoffs.command("list")
@crew_options
@click.option("--state", type=click.Choice(STATES), help="Only kickoffs in this state. FAILED includes stopped ones.")
@click.option("--user", metavar="NAME", help="Only kickoffs that this user started.")
@period_options
@limit_option
@answer_option
def list_(
    url: str | None,
    access: Access,
    *,
    state: str | None,
    user: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    json_output: bool,
) -> None:
    """List the kickoffs of a crew or of a whole server, newest first.

    With URL or --deployment, lists the kickoffs of one crew. Without, lists those of all crews of the server; for
    `windlass dev PATH`, those of its crew. A user token lists the kickoffs of its user. Times are UTC.
    """
    server = None if url or access.deployment else chosen_server(access.profile)
    if server is not None and len(server.served) != 1:
        _print_all(server, state, user, in_query(since), in_query(until), limit, json_output=json_output)
        return
    if since or until:
        raise click.UsageError("--since and --until are for the list of all crews.")
    with client_for(url, access) as crew:
        page = _pages(crew, state, user, limit)
    empty = "No kickoff matches." if state or user else "The crew has no kickoffs yet."
    print_page(page, HEADINGS, _cells, member="kickoffs", empty=empty, json_output=json_output)


def _print_all(
    server: Server,
    state: str | None,
    user: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    *,
    json_output: bool,
) -> None:
    """Prints the kickoffs of all crews."""
    with control_of(server) as control:
        page = control.pages("kickoffs", limit=limit, state=state, user=user, since=since, until=until)
    filtered = state or user or since or until
    empty = "No kickoff matches." if filtered else "There are no kickoffs yet."
    print_page(page, OF_ALL, _cells_of_all, member="kickoffs", empty=empty, json_output=json_output)


def _cells_of_all(kickoff: dict[str, Any]) -> list[str]:
    return [
        kickoff["kickoff_id"],
        kickoff["deployment"],
        str(kickoff["version"] or "-"),
        _state(kickoff),
        second(kickoff["created_at"]),
        second(kickoff["finished_at"]),
        kickoff["user"] or "-",
    ]


def _state(kickoff: dict[str, Any]) -> str:
    return kickoff["state"] if kickoff["reason"] in {None, "error"} else f"{kickoff['state']} ({kickoff['reason']})"


def _pages(
    crew: CrewClient, state: str | None, user: str | None, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Returns at most `limit` kickoffs, and the cursor after them, None when there are no more."""
    found: list[dict[str, Any]] = []
    cursor = None
    while len(found) < limit:
        page = crew.kickoffs(state, user, min(limit - len(found), LARGEST_PAGE), cursor)
        found += page["kickoffs"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    return found, cursor


def _cells(kickoff: dict[str, Any]) -> list[str]:
    error = " ".join((kickoff["error"] or "").split())
    seconds, tokens = kickoff["execution_time"], kickoff["total_tokens"]
    return [
        kickoff["kickoff_id"],
        _state(kickoff),
        second(kickoff["created_at"]),
        "-" if seconds is None else f"{seconds:.1f}",
        "-" if tokens is None else f"{tokens:,}",
        kickoff["user"] or "-",
        error if len(error) <= LONGEST_ERROR else f"{error[: LONGEST_ERROR - 3]}...",
    ]


@kickoffs.command
@click.argument("places", nargs=-1, required=True, metavar="[URL] KICKOFF_ID...", shell_complete=complete_kickoff)
@access_options
@answer_option
@click.option("--stop", is_flag=True, help="First stop kickoffs that have not ended.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def delete(
    context: click.Context,
    /,
    places: tuple[str, ...],
    access: Access,
    *,
    stop: bool,
    yes: bool,
    json_output: bool,
) -> None:
    """Delete kickoffs for good, with all of their data.

    Deletes their inputs, results, events, journals, attempts, task records and idempotency keys. Only a backup can
    restore them. The token needs the scope admin. Without URL, the kickoff is looked up on the chosen server.
    """
    url = crew_url(context, context.command.params[0], places[0]) if "://" in places[0] else None
    kickoffs = places[1:] if url else places
    if not kickoffs:
        raise click.UsageError("Give the id of a kickoff after the crew's URL.", context)
    confirm(f"Delete {len(kickoffs)} kickoff{'s' if len(kickoffs) > 1 else ''} for good?", yes=yes)
    answers = []
    for kickoff in kickoffs:
        with client_at(KickoffAt(url, kickoff), access) as crew:
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

"""Lists the kickoffs of a crew, and deletes kickoffs."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.crew_options import KickoffAt, access_options, answer_option, client_at, crew_url
from windlass.cli.printing import notify, print_json, print_table

if TYPE_CHECKING:
    from windlass.cli.crew_session import CrewClient

STATES = ("PENDING", "STARTED", "PENDING_HUMAN_INPUT", "SUCCESS", "FAILED")
HEADINGS = ("KICKOFF", "STATE", "CREATED", "SECONDS", "TOKENS", "USER", "ERROR")
LARGEST_PAGE = 200
LONGEST_ERROR = 60


class _ListByDefault(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names = {*self.commands, *self.get_help_option_names(ctx)}
        return super().parse_args(ctx, args if args and args[0] in names else ["list", *args])


@click.group(cls=_ListByDefault)
def kickoffs() -> None:
    """List the kickoffs of a crew, or delete some for good.

    Without a command it lists: `windlass kickoffs --state FAILED`.
    """


@kickoffs.command("list")
@click.argument("url", required=False)
@access_options
@click.option("--state", type=click.Choice(STATES), help="Only kickoffs in this state. FAILED includes stopped ones.")
@click.option("--user", metavar="NAME", help="Only kickoffs that this user started.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, metavar="NUMBER", help="The most rows."
)
@answer_option
@click.pass_context
def list_(
    context: click.Context,
    /,
    url: str | None,
    token: str | None,
    token_file: Any,
    *,
    state: str | None,
    user: str | None,
    limit: int,
    json_output: bool,
) -> None:
    """List the kickoffs of a crew, newest first.

    A user token lists the kickoffs of its user. Times are UTC. Without URL, lists the kickoffs of the crew that this
    machine's server serves.
    """
    base_url = None if url is None else crew_url(context, context.command.params[0], url)
    with client_at(KickoffAt(base_url, ""), token, token_file) as crew:
        found, cursor = _pages(crew, state, user, limit)
    if json_output:
        print_json({"kickoffs": found, "next_cursor": cursor})
    elif found:
        print_table(HEADINGS, [_cells(kickoff) for kickoff in found])
        if cursor:
            notify(f"There may be older kickoffs. List more with: --limit {limit * 2}")
    else:
        notify("No kickoff matches." if state or user else "The crew has no kickoffs yet.")


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
    created = datetime.fromisoformat(kickoff["created_at"]).astimezone(UTC)
    error = " ".join((kickoff["error"] or "").split())
    seconds, tokens = kickoff["execution_time"], kickoff["total_tokens"]
    return [
        kickoff["kickoff_id"],
        kickoff["state"] if kickoff["reason"] in {None, "error"} else f"{kickoff['state']} ({kickoff['reason']})",
        f"{created:%Y-%m-%d %H:%M:%S}",
        "-" if seconds is None else f"{seconds:.1f}",
        "-" if tokens is None else f"{tokens:,}",
        kickoff["user"] or "-",
        error if len(error) <= LONGEST_ERROR else f"{error[: LONGEST_ERROR - 3]}...",
    ]


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

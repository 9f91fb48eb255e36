"""Shows the audit log: who changed what, when and from where."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.deployment_settings import flat
from windlass.cli.lists import in_query, limit_option, period_options, print_page, second
from windlass.cli.printing import json_option, print_result
from windlass.cli.servers import server_options

if TYPE_CHECKING:
    from datetime import datetime

    from windlass.cli.control_session import ControlSession

HEADINGS = ("TIME", "USER", "ACTION", "TARGET", "DETAILS", "ADDRESS")
LONGEST_DETAILS = 50


@click.command
@click.option("--user", metavar="NAME", help="Only changes by this user.")
@click.option("--action", metavar="ACTION", help="Only this action, such as variable.set, or all of a kind: variable.")
@click.option("--target", metavar="NAME", help="Only changes of this deployment, user or token.")
@period_options
@limit_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with all members and all changes, for a spreadsheet.")
@json_option
@server_options
def audit(
    *,
    control: ControlSession,
    user: str | None,
    action: str | None,
    target: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    as_csv: bool,
    json_output: bool,
) -> None:
    """Show who changed what on the server.

    Lists deployments, variables, settings, users and tokens that were changed, newest first, with who did it and from
    which address. Values of variables and tokens are not in it. Times are UTC. Needs the role owner.
    """
    if as_csv and json_output:
        raise click.UsageError("Give --csv or --json, not both.")
    filters = {"user": user, "action": action, "target": target, "since": in_query(since), "until": in_query(until)}
    if as_csv:
        print_result(control.text("audit", media_type="text/csv", **filters).decode().rstrip())
        return
    page = control.pages("audit", limit=limit, **filters)
    print_page(page, HEADINGS, _cells, member="audit", empty="No change matches.", json_output=json_output)


def _cells(row: dict[str, Any]) -> list[str]:
    details = ", ".join(f"{name}={_words(value)}" for name, value in flat(row["details"] or {}).items()) or "-"
    shown = details if len(details) <= LONGEST_DETAILS else f"{details[: LONGEST_DETAILS - 3]}..."
    return [second(row["at"]), row["user"] or "-", row["action"], row["target"], shown, row["address"] or "-"]


def _words(value: object) -> str:
    if isinstance(value, list):
        return " ".join(str(one["name"]) if isinstance(one, dict) and "name" in one else _words(one) for one in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

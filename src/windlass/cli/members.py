"""Shows and changes who sees a deployment: `windlass deployments members`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windlass.cli.completion import complete_crew
from windlass.cli.lists import second
from windlass.cli.printing import json_option, notify, print_json, print_table
from windlass.cli.servers import server_options

if TYPE_CHECKING:
    from windlass.cli.control_session import ControlSession

HEADINGS = ("PERSON", "OWNER", "SINCE")
VISIBLE = {
    "members": "Its members and the owners of the server see it.",
    "everybody": "All viewers and developers see it.",
}


@click.command
@click.argument("slug", metavar="DEPLOYMENT", shell_complete=complete_crew)
@click.argument("action", metavar="[add|remove]", type=click.Choice(["add", "remove"]), required=False)
@click.argument("person", required=False)
@click.option("--owner", is_flag=True, help="With add: the person also changes the members.")
@click.option("--visible-to", type=click.Choice(list(VISIBLE)), help="Who sees the deployment.")
@json_option
@server_options
def members(
    slug: str,
    action: str | None,
    person: str | None,
    *,
    control: ControlSession,
    owner: bool,
    visible_to: str | None,
    json_output: bool,
) -> None:
    """Show who sees a deployment, add or remove a person.

    Owners of the server see all deployments. `add` of a member sets whether the person is an owner of the deployment.
    docs/how-to/people.md describes what each may do.
    """
    if action and person is None:
        raise click.UsageError(f"Give the name of the person: windlass deployments members {slug} {action} PERSON")
    if owner and action != "add":
        raise click.UsageError("--owner needs add PERSON.")
    path = ("deployments", slug, "members")
    if visible_to:
        control.send("PATCH", *path, body={"visible_to": visible_to})
    if action == "add":
        control.send("PUT", *path, person or "", body={"owner": owner})
        notify(f"{person} is {'an owner' if owner else 'a member'} of {slug}.")
    elif action:
        control.send("DELETE", *path, person or "")
        notify(f"{person} is no member of {slug} any more.")
        if not json_output:
            return  # the person may be the caller, who does not see it any more
    _print(control.get(*path), json_output=json_output)


def _print(found: dict[str, Any], *, json_output: bool) -> None:
    if json_output:
        print_json({"visible_to": found["visible_to"], "items": found["items"]})
        return
    notify(VISIBLE[found["visible_to"]])
    if found["items"]:
        print_table(HEADINGS, [_cells(one) for one in found["items"]])
    else:
        notify("It has no members.")


def _cells(row: dict[str, Any]) -> list[str]:
    return [row["user"], "yes" if row["owner"] else "", second(row["added_at"])]

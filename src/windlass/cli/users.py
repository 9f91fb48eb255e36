"""Manages users, their roles and their sign-in."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.lists import ListByDefault, print_page, second
from windlass.cli.printing import json_option, notify, print_json, print_result
from windlass.cli.servers import demand_local, server_options

if TYPE_CHECKING:
    from windlass.cli.control_session import ControlSession

MOST_USERS = 100_000
LONGEST_NAME = 100
LONGEST_LINE = 1000
HEADINGS = ("USER", "ROLE", "STATE", "ADDED")
ROLES = ("owner", "developer", "viewer")


def user_name(_: click.Context, __: click.Parameter, value: str) -> str:
    if not (value.strip() == value != "" and value.isprintable() and len(value) <= LONGEST_NAME):
        raise click.BadParameter(f"a user's name has 1 to {LONGEST_NAME} characters that can be printed.")
    return value


role_option = click.option(
    "--role",
    type=click.Choice(ROLES),
    help="What the user may do with the control API. An owner does everything, a developer deploys, a viewer reads. By "
    "default nothing.",
)


@click.group(cls=ListByDefault)
def users() -> None:
    """Manage users, their roles and their sign-in to the dashboard.

    Without a command it lists: `windlass admin users`.
    """


@click.command("first-owner")
@click.argument("name", default="owner", callback=user_name)
@json_option
def first_owner(name: str, *, json_output: bool) -> None:
    """Make the first owner of a server, and print a token.

    NAME is by default `owner`, and the token is a personal one. Run the command on the server's machine. It works
    before anybody can sign in and while no server runs, and also when no owner can sign in any more.
    """
    from windlass.cli.this_server import administer
    from windlass.config import load

    demand_local()
    token = administer(load(), lambda opened: opened.tokens.make_owner(name))
    if json_output:
        print_json({"token": token.reveal(), "user": name})
    else:
        print_result(token.reveal())
    notify(f"It is a personal token of {name}, who is an owner. It is not shown again. Log in with: windlass login URL")


@users.command
@click.argument("name", callback=user_name)
@role_option
@json_option
@server_options
def add(name: str, *, control: ControlSession, role: str | None, json_output: bool) -> None:
    """Add a user."""
    control.send("POST", "users", body={"name": name, "role": role})
    if json_output:
        print_json({"name": name, "state": "active", "role": role})
    personal = " --personal" if role else ""
    line = f"windlass tokens create{personal} --user {shlex.quote(name)}"
    notify(f"The user {name} is added{f', with the role {role}' if role else ''}. Make a token with: {line}")


@users.command("list")
@json_option
@server_options
def list_(*, control: ControlSession, json_output: bool) -> None:
    """List the users, with their roles, and which of them are disabled. Times are UTC."""
    found, _ = control.pages("users", limit=MOST_USERS)
    rows = [
        {"name": one["name"], "state": _state(one), "role": one["role"], "added_at": one["created_at"]} for one in found
    ]
    empty = "There are no users yet. Add one with: windlass admin users add NAME"
    print_page((rows, None), HEADINGS, _cells, empty=empty, json_output=json_output)


@users.command
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([*ROLES, "none"]),
    help="What the user may do with the control API. `none` takes the access away. One owner must remain.",
)
@click.option(
    "--disable/--enable", "disabled", default=None, help="Refuse all tokens of the user, or accept them again."
)
@json_option
@server_options
def change(name: str, *, control: ControlSession, role: str | None, disabled: bool | None, json_output: bool) -> None:
    """Change the role of a user, or disable or enable a user, on every server within a second.

    An owner may do everything with the control API, a developer may deploy and change deployments, a viewer may read.
    Kickoffs that a disabled user started continue: `windlass stop --all --user NAME` stops them. The command ends when
    every server has the change.
    """
    if role is None and disabled is None:
        raise click.UsageError("Give --role, --disable or --enable.")
    changes: dict[str, Any] = {} if role is None else {"role": None if role == "none" else role}
    if disabled is not None:
        changes["disabled"] = disabled
    control.send("PATCH", "users", name, body=changes)
    if json_output:
        state = {} if disabled is None else {"state": _state(changes)}
        changed = {} if role is None else {"role": changes["role"]}
        print_json({"name": name, **changed, **state})
    if role == "none":
        notify(f"The user {name} has no role any more.")
    elif role is not None:
        notify(f"The user {name} has the role {role} now.")
    if disabled is not None:
        notify(_words_of_state(name, disabled=disabled))


def _words_of_state(name: str, *, disabled: bool) -> str:
    if not disabled:
        return f"The user {name} is enabled."
    stop = f"windlass stop --all --user {shlex.quote(name)}"
    return f"The user {name} is disabled. Its kickoffs continue. Stop them with: {stop}"


@users.command
@click.argument("name")
@click.option("--data-only", is_flag=True, help="Delete only the kickoffs, and keep the user and the tokens.")
@click.option("--stop", is_flag=True, help="First stop kickoffs of the user that have not ended.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def delete(name: str, *, data_only: bool, stop: bool, yes: bool, json_output: bool) -> None:
    """Delete a user for good, with all tokens and kickoffs.

    Deletes the user's kickoffs of every crew, with inputs, results, events, journals, attempts, task records and
    idempotency keys. Only a backup can restore them.
    """
    from windlass.cli.kickoffs import confirm
    from windlass.cli.this_server import administer
    from windlass.config import load

    demand_local()
    whole = "all kickoffs of the user" if data_only else "the user, all its tokens and all kickoffs of"
    confirm(f"Delete {whole} {name} for good?", yes=yes)
    count = administer(load(), lambda opened: opened.users.delete(name, stop=stop, data_only=data_only))
    if json_output:
        print_json({"name": name, "deleted_kickoffs": count, "deleted_user": not data_only})
    notify(f"{count} kickoff{'' if count == 1 else 's'} of {name} deleted{'' if data_only else ', and the user'}.")


@users.command
@click.argument("name")
@json_option
def link(name: str, *, json_output: bool) -> None:
    """Print a link that signs a user in to the dashboard, once, within 30 minutes.

    The user `owner` is made an owner if nobody has given the user a role. Run it on the server's machine.
    """
    from windlass.access.sessions import LINK_VALID
    from windlass.cli.this_server import administer, local_url
    from windlass.config import load

    demand_local()
    settings = load()
    code = administer(settings, lambda opened: opened.sessions.new_link(name))
    url = f"{settings.public_url or local_url(settings)}/ui/sign-in?code={code.reveal()}"
    minutes = int(LINK_VALID.total_seconds() / 60)
    if json_output:
        print_json({"name": name, "url": url, "valid_seconds": int(LINK_VALID.total_seconds())})
    else:
        click.echo(url)
    notify(f"The link signs {name} in once, within {minutes} minutes. Send it only to {name}.")


@users.command
@click.argument("name")
@json_option
def password(name: str, *, json_output: bool) -> None:
    """Set the password with which a user signs in to the dashboard.

    Asks for it, or reads it from standard input. All sessions of the user end. Run it on the server's machine.
    """
    from windlass.cli.this_server import administer
    from windlass.config import load

    demand_local()
    if sys.stdin.isatty():
        new = str(click.prompt("New password", hide_input=True, confirmation_prompt=True, err=True))
    else:
        new = sys.stdin.readline(LONGEST_LINE).rstrip("\n")
    administer(load(), lambda opened: opened.sessions.set_password(name, new))
    if json_output:
        print_json({"name": name})
    notify(f"The password of {name} is set, and the sessions of {name} have ended.")


def _state(row: dict[str, Any]) -> str:
    return "disabled" if row["disabled"] else "active"


def _cells(row: dict[str, Any]) -> list[str]:
    return [row["name"], row["role"] or "-", row["state"], second(row["added_at"])]

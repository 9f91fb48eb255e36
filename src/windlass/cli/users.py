from __future__ import annotations

import shlex
from datetime import UTC
from typing import TYPE_CHECKING

import click

from windlass.cli.printing import json_option, notify, print_json, print_table

if TYPE_CHECKING:
    from windlass.store.tokens import UserRow

LONGEST_NAME = 100
HEADINGS = ("USER", "STATE", "ADDED")


def user_name(_: click.Context, __: click.Parameter, value: str) -> str:
    if not (value.strip() == value != "" and value.isprintable() and len(value) <= LONGEST_NAME):
        raise click.BadParameter(f"a user's name has 1 to {LONGEST_NAME} characters that can be printed.")
    return value


@click.group
def users() -> None:
    """Add, list, disable, enable and delete users."""


@users.command
@click.argument("name", callback=user_name)
@json_option
def add(name: str, *, json_output: bool) -> None:
    """Add a user."""
    from windlass.cli.this_server import administer
    from windlass.config import load

    administer(load(), lambda opened: opened.tokens.add_user(name))
    _print_state(name, "active", json_output=json_output)
    notify(f"The user {name} is added. Make a token with: windlass tokens create --user {shlex.quote(name)}")


@users.command("list")
@json_option
def list_(*, json_output: bool) -> None:
    """List the users, and which of them are disabled."""
    from windlass.cli.this_server import administer
    from windlass.config import load

    rows = administer(load(), lambda opened: opened.tokens.users())
    if json_output:
        print_json([{"name": row.name, "state": _state(row), "added_at": row.created_at} for row in rows])
    elif rows:
        print_table(HEADINGS, [_cells(row) for row in rows])
    else:
        notify("There are no users yet. Add one with: windlass users add NAME")


@users.command
@click.argument("name")
@json_option
def disable(name: str, *, json_output: bool) -> None:
    """Disable a user: every server refuses all tokens of the user within a second.

    Kickoffs that the user started continue: `windlass stop --all --user NAME` stops them.
    """
    from windlass.cli.this_server import administer
    from windlass.config import load

    administer(load(), lambda opened: opened.tokens.disable_user(name))
    _print_state(name, "disabled", json_output=json_output)
    quoted = shlex.quote(name)
    notify(f"The user {name} is disabled. Its kickoffs continue. Stop them with: windlass stop --all --user {quoted}")


@users.command
@click.argument("name")
@json_option
def enable(name: str, *, json_output: bool) -> None:
    """Enable a disabled user: its tokens are accepted again."""
    from windlass.cli.this_server import administer
    from windlass.config import load

    administer(load(), lambda opened: opened.tokens.enable_user(name))
    _print_state(name, "active", json_output=json_output)
    notify(f"The user {name} is enabled.")


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

    whole = "all kickoffs of the user" if data_only else "the user, all its tokens and all kickoffs of"
    confirm(f"Delete {whole} {name} for good?", yes=yes)
    count = administer(load(), lambda opened: opened.users.delete(name, stop=stop, data_only=data_only))
    if json_output:
        print_json({"name": name, "deleted_kickoffs": count, "deleted_user": not data_only})
    notify(f"{count} kickoff{'' if count == 1 else 's'} of {name} deleted{'' if data_only else ', and the user'}.")


def _state(row: UserRow) -> str:
    return "disabled" if row.disabled_at else "active"


def _print_state(name: str, state: str, *, json_output: bool) -> None:
    if json_output:
        print_json({"name": name, "state": state})


def _cells(row: UserRow) -> list[str]:
    return [row.name, _state(row), f"{row.created_at.astimezone(UTC):%Y-%m-%d %H:%MZ}"]

"""Lists, tests, changes and removes the credentials with which the server reads secrets from secret managers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

import click

from windlass.cli.adding_credentials import (
    HELP_OF_DEPLOYMENTS,
    HELP_OF_ROLES,
    add,
    asked_secrets,
    content_of,
    from_file_option,
    permissions_of,
)
from windlass.cli.completion import complete_credential, complete_secret
from windlass.cli.exit_codes import FAILED
from windlass.cli.lists import ListByDefault, print_page, second
from windlass.cli.printing import columns, json_option, notify, print_error, print_json, print_result
from windlass.cli.servers import server_options

if TYPE_CHECKING:
    from windlass.cli.control_session import ControlSession

HEADINGS = ("CREDENTIAL", "PROVIDER", "METHOD", "READ", "DEFAULT", "VARIABLES", "UPDATED", "BY")


@click.group(cls=ListByDefault)
def credentials() -> None:
    """Manage the credentials for secret managers.

    A credential gives access to a secret manager. Variables of deployments take their values from there:
    windlass env set DEPLOYMENT NAME --from CREDENTIAL. docs/how-to/secrets.md describes it.
    Without a command it lists: `windlass credentials`.
    """


credentials.add_command(add)


name_argument = click.argument("name", metavar="CREDENTIAL", shell_complete=complete_credential)


@credentials.command("list")
@json_option
@server_options
def list_(*, control: ControlSession, json_output: bool) -> None:
    """List the credentials, with when their secrets are read. Times are UTC."""
    rows = control.get("credentials")["items"]
    empty = "There is no credential yet. `windlass credentials add --help` shows how to add one."
    print_page((rows, None), HEADINGS, _cells, empty=empty, json_output=json_output)


def _cells(row: dict[str, Any]) -> list[str]:
    facts = [row["name"], row["provider"], row["method"], row["read"], "yes" if row["is_default"] else "-"]
    return [*facts, str(row["variables"]), second(row["updated_at"]), row["updated_by"] or "-"]


@credentials.command
@name_argument
@json_option
@server_options
def show(name: str, *, control: ControlSession, json_output: bool) -> None:
    """Show a credential without its secret values."""
    found = control.get("credentials", name)
    if json_output:
        print_json(found)
        return
    members = found["configuration"] or {"configuration": "can't be decrypted: give all members again"}
    facts = [
        ["Credential", found["name"]],
        ["Provider", f"{found['provider']}{' (its default credential)' if found['is_default'] else ''}"],
        ["Method", f"{found['method']}: secrets are read {found['read']}"],
        *([member, str(value)] for member, value in members.items()),
        ["Used by", _users(found)],
        ["Variables", str(found["variables"])],
        ["Updated", f"{second(found['updated_at'])} by {found['updated_by'] or '-'}"],
    ]
    for line in columns(facts):
        print_result(line)


def _users(found: dict[str, Any]) -> str:
    """Returns in words whose variables may use a credential."""
    roles = [f"people with the role {role}" for role in found["roles"]]
    deployments = [f"the deployments {', '.join(found['deployments'])}"] if found["deployments"] else []
    return " and ".join([*roles, *deployments]) or "owners of the server"


@credentials.command
@name_argument
@json_option
@server_options
def test(name: str, *, control: ControlSession, json_output: bool) -> int:
    """Prove to the provider who the server is, and show the answer.

    Reads no secret: whether the credential may read one is seen when it is read. Exits with 1 when the provider refuses
    the server.
    """
    found = control.send("POST", "credentials", name, "test")
    if json_output:
        print_json(found)
    elif found["ok"]:
        print_result(found["message"])
    else:
        print_error(f"{name}: {found['message']}", found["hint"])
    return 0 if found["ok"] else FAILED


@credentials.command
@name_argument
@click.argument("prefix", default="", shell_complete=complete_secret)
@json_option
@server_options
def secrets(name: str, prefix: str, *, control: ControlSession, json_output: bool) -> None:
    """List names of secrets at the provider that begin with PREFIX, 100 at most.

    The credential needs the permission to list secrets.
    """
    names = control.get("credentials", name, "secrets", prefix=prefix)["items"]
    if json_output:
        print_json(names)
    elif names:
        print_result("\n".join(names))
    else:
        notify(f"The provider lists no secret{f' that begins with {prefix}' if prefix else ''}.")


@credentials.command
@name_argument
@click.argument("pairs", nargs=-1, metavar="[MEMBER=VALUE]...")
@click.option("--rename", metavar="NAME", help="Give it another name. Variables that use it follow.")
@click.option("--method", metavar="METHOD", help="Change how the server proves to the provider who it is.")
@click.option("--unset", "unset", multiple=True, metavar="MEMBER", help="Remove the value of a member.")
@click.option("--deployments", metavar="NAME,...", help=HELP_OF_DEPLOYMENTS)
@click.option("--roles", metavar="ROLE,...", help=HELP_OF_ROLES)
@click.option(
    "--default/--not-default",
    "is_default",
    default=None,
    help="Make it the default credential of its provider, or no longer.",
)
@from_file_option
@json_option
@server_options
def change(
    name: str,
    pairs: tuple[str, ...],
    *,
    control: ControlSession,
    rename: str | None,
    method: str | None,
    unset: tuple[str, ...],
    is_default: bool | None,
    file: TextIO | None,
    json_output: bool,
    **permitted: str | None,
) -> None:
    """Change a credential. What is not given stays as it is.

    `windlass credentials show` has the names of the members. The name of a secret member stands alone: the command asks
    for its value, or reads it from standard input or --from-file:

    \b
        windlass credentials change prod region=eu-west-1
        windlass credentials change prod secret_access_key < key.txt
        windlass credentials change prod --deployments tea,shop

    Variables of the default credential of a provider use the one that --default names, also those that exist.
    """  # noqa: D301 - \b keeps click from wrapping the lines
    given = dict(_pair(pair) for pair in pairs if "=" in pair)
    alone = [pair for pair in pairs if "=" not in pair]
    hidden = _hidden_members(control)
    if wrong := [member for member in alone if member not in hidden]:
        raise click.UsageError(f"{wrong[0]}: give MEMBER=VALUE.")
    if shown := [member for member in given if member in hidden]:
        raise click.UsageError(f"{shown[0]} is secret: give its name alone, and its value on standard input.")
    if file is not None and not alone:
        raise click.UsageError("Name the secret member whose value --from-file has.")
    members = {**given, **asked_secrets(alone, file), **dict.fromkeys(unset)}
    changes = {"name": rename, "method": method, "configuration": members or None, "is_default": is_default}
    body: dict[str, Any] = {member: value for member, value in changes.items() if value is not None}
    body |= permissions_of(permitted)
    if not body:
        raise click.UsageError("Give MEMBER=VALUE, or an option.")
    found = control.send("PATCH", "credentials", name, body=body)
    if json_output:
        print_json(found)
    notify(f"Changed the credential {found['name']}. Test it with: windlass credentials test {found['name']}")
    if is_default:
        notify(f"{found['name']} is the default credential of {found['provider']} now.")
        if found["read"] == "at deploy":
            notify(
                "Its secrets are read at deploy: a crew gets variables of the default credential after `windlass "
                "deployments redeploy NAME`, and runs without those that were read at each kickoff until then."
            )


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, content_of(value)


def _hidden_members(control: ControlSession) -> set[str]:
    providers = control.get("credentials", "providers")["items"]
    methods = [method for provider in providers for method in provider["methods"]]
    return {member["name"] for method in methods for member in method["members"] if member["secret"]}


@credentials.command
@name_argument
@json_option
@server_options
def remove(name: str, *, control: ControlSession, json_output: bool) -> None:
    """Remove a credential that no variable uses."""
    control.send("DELETE", "credentials", name)
    if json_output:
        print_json({"name": name})
    notify(f"Removed the credential {name}.")

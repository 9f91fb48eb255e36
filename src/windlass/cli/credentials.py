"""Adds, lists, tests, changes and removes the credentials with which the server reads secrets from secret managers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from windlass.cli.exit_codes import FAILED
from windlass.cli.lists import second
from windlass.cli.printing import columns, json_option, notify, print_error, print_json, print_result, print_table
from windlass.cli.servers import server_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from click.shell_completion import CompletionItem
    from pydantic import BaseModel

    from windlass.cli.control_session import ControlSession
    from windlass.secrets.provider import Provider

HEADINGS = ("CREDENTIAL", "PROVIDER", "METHOD", "READ", "DEFAULT", "VARIABLES", "UPDATED", "BY")
LONGEST_FILE = 128 << 10
SEVERAL_LINES = "_json"
"""The end of the names of members whose values have several lines."""


@click.group
def credentials() -> None:
    """Manage the credentials for secret managers.

    The providers are AWS, Google Cloud, Azure and Vault. Variables of deployments take their values from there:
    windlass env set DEPLOYMENT NAME --from CREDENTIAL. docs/secrets.md describes it.
    """


def complete_credential(context: click.Context, _: click.Parameter, start: str) -> list[CompletionItem]:
    """Completes the name of a credential in a shell."""
    names = (row["name"] for row in _asked(context, "credentials")["items"])
    return _completions(name for name in names if name.startswith(start))


def complete_secret(context: click.Context, _: click.Parameter, start: str) -> list[CompletionItem]:
    """Completes the name of a secret in a shell, from the provider of the credential that the command names."""
    name = context.params.get("credential") or context.params.get("name")
    return _completions(_asked(context, "credentials", name, "secrets", prefix=start)["items"]) if name else []


def _asked(context: click.Context, *path: str, **query: Any) -> Mapping[str, Any]:
    """Returns an answer without items for each error: a shell shows no errors."""
    from windlass.cli.servers import chosen_server, control_of
    from windlass.errors import WindlassError

    try:
        with control_of(chosen_server(context.params.get("profile"))) as control:
            return control.get(*path, **query)
    except (WindlassError, click.ClickException):
        return {"items": []}


def _completions(names: Iterable[str]) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names]


name_argument = click.argument("name", metavar="CREDENTIAL", shell_complete=complete_credential)
from_file_option = click.option(
    "--from-file",
    "file",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="Read the secret value from FILE (- for standard input).",
)


class ProvidersGroup(click.Group):
    """Has a command for each provider, with an option for each member of its configurations that is not secret."""

    def list_commands(self, _: click.Context) -> list[str]:
        from windlass.secrets.providers import NAMES

        return list(NAMES)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        from windlass.secrets.providers import NAMES, provider

        return command_of(provider(cmd_name)) if cmd_name in NAMES else None


@credentials.group(cls=ProvidersGroup)
def add() -> None:
    """Add a credential: windlass credentials add aws|google|azure|vault NAME.

    Secret values are on no command line. The command asks for them, or reads them from standard input or --from-file.
    """


def command_of(provider: Provider) -> click.Command:
    """Returns the command that adds a credential of the provider."""

    def run(
        name: str,
        *,
        control: ControlSession,
        method: str,
        is_default: bool,
        file: TextIO | None,
        json_output: bool,
        **given: str | None,
    ) -> None:
        model = provider.methods[method]
        configuration = {**_given_members(model, method, given), **_secret_members(model, file)}
        body = {"name": name, "provider": provider.name, "method": method, "configuration": configuration}
        added = control.send("POST", "credentials", body={**body, "is_default": is_default})
        if json_output:
            print_json(added)
        notify(f"Added the credential {name}. Its secrets are read {added['read']}.")
        notify(f"Test it with: windlass credentials test {name}")

    command = click.command(provider.name, help=_help_of(provider))(json_option(server_options(run)))
    methods = click.Choice(list(provider.methods))
    command.params[:0] = [
        click.Argument(["name"], metavar="NAME"),
        click.Option(
            ["--method"], type=methods, required=True, help="How the server proves to the provider who it is."
        ),
        *_member_options(provider),
        click.Option(["--default", "is_default"], is_flag=True, help="Make it the default credential of the provider."),
        click.Option(
            ["--from-file", "file"],
            type=click.File(encoding="utf-8"),
            metavar="FILE",
            help="Read the secret value from FILE (- for standard input).",
        ),
    ]
    return command


def _help_of(provider: Provider) -> str:
    """Returns the help of the command, with the methods on lines of their own."""
    methods = [f"  {name}: {(model.__doc__ or '').strip()}" for name, model in provider.methods.items()]
    lines = "\n".join(methods)
    return f"Add a credential for {provider.title}.\n\nThe methods:\n\n\b\n{lines}\n"


def _member_options(provider: Provider) -> list[click.Option]:
    """Returns an option for each member that is not secret, of all methods."""
    from windlass.deployments.credentials import secret_members

    found: dict[str, tuple[str, list[str]]] = {}
    for method, model in provider.methods.items():
        for name, field in model.model_fields.items():
            if name not in secret_members(model):
                found.setdefault(name, (field.description or "", []))[1].append(method)
    return [
        click.Option([option_of(name)], metavar="TEXT", help=_help_of_member(help_, methods, provider))
        for name, (help_, methods) in found.items()
    ]


def _help_of_member(text: str, methods: list[str], provider: Provider) -> str:
    return text if len(methods) == len(provider.methods) else f"{text}  [{', '.join(methods)}]"


def option_of(member: str) -> str:
    return f"--{member.replace('_', '-')}"


def _given_members(model: type[BaseModel], method: str, given: Mapping[str, str | None]) -> dict[str, str]:
    """Returns the members that are given as options. A value `@FILE` is read from the file. Raises click.UsageError."""
    found = {name: value for name, value in given.items() if value is not None}
    if wrong := [name for name in found if name not in model.model_fields]:
        raise click.UsageError(f"The method {method} takes no {option_of(wrong[0])}.")
    from windlass.deployments.credentials import secret_members

    needed = [name for name, field in model.model_fields.items() if field.is_required()]
    if missing := [name for name in needed if name not in found and name not in secret_members(model)]:
        raise click.UsageError(f"The method {method} needs {' and '.join(map(option_of, missing))}.")
    return {name: _content(value) for name, value in found.items()}


def _content(value: str) -> str:
    if not value.startswith("@"):
        return value
    try:
        with Path(value[1:]).open(encoding="utf-8") as file:
            return file.read(LONGEST_FILE)
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{value[1:]} can't be read: {error}.") from None


def _secret_members(model: type[BaseModel], file: TextIO | None) -> dict[str, str]:
    from windlass.deployments.credentials import secret_members

    names = sorted(secret_members(model))
    if file is not None and not names:
        raise click.UsageError("This method has no secret value, so --from-file has no use.")
    return _asked_secrets(names, file)


def _asked_secrets(names: list[str], file: TextIO | None) -> dict[str, str]:
    """Returns the values of secret members: from the file, from a hidden prompt, or from standard input."""
    if len(names) > 1 and (file is not None or not sys.stdin.isatty()):
        raise click.UsageError(f"Only one value can be read from a file. The secret values are {', '.join(names)}.")
    return {name: _secret(name, file) for name in names}


def _secret(name: str, file: TextIO | None) -> str:
    if file is None and sys.stdin.isatty():
        if name.endswith(SEVERAL_LINES):
            raise click.UsageError("Give the file with --from-file FILE.")
        return str(click.prompt(name.replace("_", " ").capitalize(), hide_input=True, err=True))
    try:
        return (file or sys.stdin).read(LONGEST_FILE).strip()
    except UnicodeDecodeError:
        raise click.UsageError("The secret value is not UTF-8 text.") from None


@credentials.command("list")
@json_option
@server_options
def list_(*, control: ControlSession, json_output: bool) -> None:
    """List the credentials, with when their secrets are read. Times are UTC."""
    rows = control.get("credentials")["items"]
    if json_output:
        print_json(rows)
    elif rows:
        print_table(HEADINGS, [_cells(row) for row in rows])
    else:
        notify("There is no credential yet. Add one with: windlass credentials add aws|google|azure|vault NAME")


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
        ["Variables", str(found["variables"])],
        ["Updated", f"{second(found['updated_at'])} by {found['updated_by'] or '-'}"],
    ]
    for line in columns(facts):
        print_result(line)


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


@credentials.command("set-default")
@name_argument
@json_option
@server_options
def set_default(name: str, *, control: ControlSession, json_output: bool) -> None:
    """Make a credential the default one of its provider.

    Variables of the default credential of this provider then use it, also those that exist.
    """
    found = control.send("PATCH", "credentials", name, body={"is_default": True})
    if json_output:
        print_json(found)
    notify(f"{name} is the default credential of {found['provider']} now.")


@credentials.command
@name_argument
@click.argument("pairs", nargs=-1, metavar="[MEMBER=VALUE]...")
@click.option("--rename", metavar="NAME", help="Give it another name. Variables that use it follow.")
@click.option("--method", metavar="METHOD", help="Change how the server proves to the provider who it is.")
@click.option("--unset", "unset", multiple=True, metavar="MEMBER", help="Remove the value of a member.")
@click.option("--not-default", is_flag=True, help="No longer the default credential of its provider.")
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
    not_default: bool,
    file: TextIO | None,
    json_output: bool,
) -> None:
    """Change a credential. What is not given stays as it is.

    `windlass credentials show` has the names of the members. The name of a secret member stands alone: the command asks
    for its value, or reads it from standard input or --from-file:

    \b
        windlass credentials change prod region=eu-west-1
        windlass credentials change prod secret_access_key < key.txt
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
    members = {**given, **_asked_secrets(alone, file), **dict.fromkeys(unset)}
    changes = {"name": rename, "method": method, "configuration": members or None}
    body: dict[str, Any] = {member: value for member, value in changes.items() if value is not None}
    if not_default:
        body["is_default"] = False
    if not body:
        raise click.UsageError("Give MEMBER=VALUE, or an option.")
    found = control.send("PATCH", "credentials", name, body=body)
    if json_output:
        print_json(found)
    notify(f"Changed the credential {found['name']}. Test it with: windlass credentials test {found['name']}")


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, _content(value)


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

"""Adds credentials: a command for each provider, with options that the models of its configurations define."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from windlass.cli.printing import json_option, notify, print_json
from windlass.cli.servers import server_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from windlass.cli.control_session import ControlSession
    from windlass.secrets.provider import Provider

LONGEST_FILE = 128 << 10
SEVERAL_LINES = "_json"
"""The end of the names of members whose values have several lines."""

HELP_OF_DEPLOYMENTS = "Deployments whose variables may use it. Without deployments and roles: owners of the server."
HELP_OF_ROLES = "developer: every developer may use it, in each deployment that the developer may change."

from_file_option = click.option(
    "--from-file",
    "file",
    type=click.File(encoding="utf-8-sig"),
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


@click.group(cls=ProvidersGroup)
def add() -> None:
    """Add a credential: windlass credentials add PROVIDER NAME.

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
        roles: str | None,
        deployments: str | None,
        file: TextIO | None,
        json_output: bool,
        **given: str | None,
    ) -> None:
        model = provider.methods[method]
        configuration = {**_given_members(model, method, given), **_secret_members(model, file)}
        body = {"name": name, "provider": provider.name, "method": method, "configuration": configuration}
        permitted = permissions_of({"roles": roles, "deployments": deployments})
        added = control.send("POST", "credentials", body={**body, "is_default": is_default, **permitted})
        if json_output:
            print_json(added)
        notify(f"Added the credential {name}. Its secrets are read {added['read']}.")
        notify(f"Test it with: windlass credentials test {name}")

    command = click.command(provider.name, help=_help_of(provider))(from_file_option(json_option(server_options(run))))
    methods = click.Choice(list(provider.methods))
    command.params[:0] = [
        click.Argument(["name"], metavar="NAME"),
        click.Option(
            ["--method"], type=methods, required=True, help="How the server proves to the provider who it is."
        ),
        *_member_options(provider),
        click.Option(["--deployments"], metavar="NAME,...", help=HELP_OF_DEPLOYMENTS),
        click.Option(["--roles"], metavar="ROLE,...", help=HELP_OF_ROLES),
        click.Option(["--default", "is_default"], is_flag=True, help="Make it the default credential of the provider."),
    ]
    return command


def _help_of(provider: Provider) -> str:
    """Returns the help of the command, with the methods on lines of their own."""
    methods = [f"  {name}: {(model.__doc__ or '').strip()}" for name, model in provider.methods.items()]
    lines = "\n".join(methods)
    return f"Add a credential for {provider.title}.\n\nThe methods:\n\n\b\n{lines}\n"


def _member_options(provider: Provider) -> list[click.Option]:
    """Returns an option for each member that is not secret, of all methods."""
    from windlass.deployments.configurations import secret_members

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


def permissions_of(given: Mapping[str, str | None]) -> dict[str, list[str]]:
    """Returns the members of a body for the options that are given. An empty one removes all."""
    split = {name: text.split(",") for name, text in given.items() if text is not None}
    return {name: [one.strip() for one in words if one.strip()] for name, words in split.items()}


def option_of(member: str) -> str:
    return f"--{member.replace('_', '-')}"


def _given_members(model: type[BaseModel], method: str, given: Mapping[str, str | None]) -> dict[str, str]:
    """Returns the members that are given as options. A value `@FILE` is read from the file. Raises click.UsageError."""
    found = {name: value for name, value in given.items() if value is not None}
    if wrong := [name for name in found if name not in model.model_fields]:
        raise click.UsageError(f"The method {method} takes no {option_of(wrong[0])}.")
    from windlass.deployments.configurations import secret_members

    needed = [name for name, field in model.model_fields.items() if field.is_required()]
    if missing := [name for name in needed if name not in found and name not in secret_members(model)]:
        raise click.UsageError(f"The method {method} needs {' and '.join(map(option_of, missing))}.")
    return {name: content_of(value) for name, value in found.items()}


def content_of(value: str) -> str:
    if not value.startswith("@"):
        return value
    try:
        with Path(value[1:]).open(encoding="utf-8-sig") as file:
            return file.read(LONGEST_FILE)
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{value[1:]} can't be read: {error}.") from None


def _secret_members(model: type[BaseModel], file: TextIO | None) -> dict[str, str]:
    from windlass.deployments.configurations import secret_members

    names = sorted(secret_members(model))
    if file is not None and not names:
        raise click.UsageError("This method has no secret value, so --from-file has no use.")
    return asked_secrets(names, file)


def asked_secrets(names: list[str], file: TextIO | None) -> dict[str, str]:
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

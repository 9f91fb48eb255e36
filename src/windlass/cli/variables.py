"""Lists, sets and removes the variables of a deployment."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import click

from windlass import config
from windlass.cli.completion import complete_credential, complete_crew, complete_secret
from windlass.cli.lists import print_page, second
from windlass.cli.printing import json_option, notify, print_json
from windlass.cli.servers import server_options
from windlass.deployments.env_files import BadEnvFile, looks_secret, parse_env_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from windlass.cli.control_session import ControlSession

HEADINGS = ("NAME", "VALUE", "SECRET", "SOURCE", "SECRET NAME", "READ", "UPDATED", "BY")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_FILE = 1 << 20
HIDDEN = "(secret)"


@dataclass(frozen=True, slots=True)
class Given:
    """A variable to set. With the value None it keeps the one that it has."""

    name: str
    value: str | None
    secret: bool

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, "secret": self.secret}


@dataclass(frozen=True, slots=True)
class Managed:
    """A variable to set whose value comes from a secret manager. `source` has the members of the control API."""

    name: str
    source: dict[str, str]
    secret_name: str
    secret: bool = True

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "source": self.source, "secret_name": self.secret_name}


def env_file(file: TextIO, *, secret: bool | None = None) -> list[Given]:
    """Returns the variables of a .env file. `secret` None decides by their names. Raises click.UsageError."""
    try:
        found = parse_env_file(file.read(LONGEST_FILE), config.environment())
    except UnicodeDecodeError:
        raise click.UsageError(f"{file.name} is not UTF-8 text.") from None
    except BadEnvFile as error:
        raise click.UsageError(f"{file.name}:{error.line} is no line of the form NAME=VALUE.") from None
    return [_given(name, value, secret) for name, value in found.items()]


def _given(name: str, value: str, secret: bool | None) -> Given:
    return Given(_checked_name(name), value, looks_secret(name, value) if secret is None else secret)


def _checked_name(name: str) -> str:
    """Raises click.UsageError."""
    if not NAME.fullmatch(name):
        raise click.UsageError(f"{name!r} is no name of a variable: letters, digits and _, no digit first.")
    if name.startswith("WINDLASS_"):
        raise click.UsageError(f"{name}: names that begin with WINDLASS_ are for the server.")
    return name


@click.group
def env() -> None:
    """List, set and remove the variables of a deployment.

    They are in the environment of its crew from its next kickoff on. They override the variables that crews get from
    the server. All values are stored encrypted.
    """


@env.command("list")
@click.argument("deployment", shell_complete=complete_crew)
@json_option
@server_options
def list_(deployment: str, *, control: ControlSession, json_output: bool) -> None:
    """List the variables of a deployment.

    Values of secret variables are never shown. READ is when the value is read from a secret manager, with the time of
    the last read at a deploy. Times are UTC.
    """
    rows = control.get("deployments", deployment, "variables")["items"]
    empty = f"{deployment} has no variables. Set one with: windlass env set {deployment} NAME=VALUE"
    print_page((rows, None), HEADINGS, _cells, empty=empty, json_output=json_output)


def _cells(row: dict[str, Any]) -> list[str]:
    shown = HIDDEN if row["secret"] else row["value"] if row["value"] is not None else "(for developers)"
    facts = [row["name"], shown, "yes" if row["secret"] else "no", source_in_words(row["source"])]
    return [*facts, row["secret_name"] or "-", _read(row), second(row["updated_at"]), row["updated_by"] or "-"]


def source_in_words(source: dict[str, Any]) -> str:
    if source["type"] == "value":
        return "value"
    return source["credential"] or f"default of {source['provider']}"


def _read(row: dict[str, Any]) -> str:
    """Returns when the value is read, and when the last deploy read it."""
    if row["source"]["type"] == "value":
        return "-"
    if row["read"] == "at deploy":
        return f"at deploy ({second(row['read_at']) if row['read_at'] else 'not yet'})"
    return row["read"] or "never: no credential"


@env.command("set")
@click.argument("deployment", shell_complete=complete_crew)
@click.argument("pairs", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--from-file",
    "file",
    type=click.File(encoding="utf-8-sig"),
    metavar="FILE",
    help="Set the variables of FILE, a .env file (- for standard input).",
)
@click.option(
    "--from",
    "credential",
    metavar="CREDENTIAL",
    shell_complete=complete_credential,
    help="Take the values from a secret manager, with this credential.",
)
@click.option(
    "--from-default",
    "provider",
    metavar="PROVIDER",
    help="Take the values from a secret manager, with the default credential of PROVIDER, such as aws.",
)
@click.option(
    "--secret-name",
    metavar="NAME",
    shell_complete=complete_secret,
    help="The name of the secret: NAME, or NAME#KEY for a member of a JSON object.",
)
@click.option(
    "--secret/--plain",
    default=None,
    help="Whether the values are secret: never shown again. By default, decided by each name and value.",
)
@json_option
@server_options
def set_(
    deployment: str,
    pairs: tuple[str, ...],
    *,
    control: ControlSession,
    file: TextIO | None,
    credential: str | None,
    provider: str | None,
    secret_name: str | None,
    secret: bool | None,
    json_output: bool,
) -> None:
    """Set variables of a deployment.

    They act from the next kickoff on. Other variables stay as they are. NAME without a value asks for a secret value,
    or reads it from standard input, so that it is on no command line:

    \b
        windlass env set my-crew DEPTH=2 TOPIC=tides
        windlass env set my-crew OPENAI_API_KEY < key.txt
        windlass env set my-crew --from-file .env

    A value is secret if the name has KEY, TOKEN, SECRET, PASS, CREDENTIAL, AUTH or DSN in it, or if the value is a URL
    with a password. --secret and --plain decide it for all values of the command.

    With --from or --from-default, the values come from a secret manager (docs/how-to/secrets.md). VALUE is then the
    name of the secret, which --secret-name can give too:

    \b
        windlass env set my-crew DB_PASSWORD --from prod --secret-name 'app/db#password'
        windlass env set my-crew 'DB_USER=app/db#user' 'DB_HOST=app/db#host' --from prod
    """  # noqa: D301 - \b keeps click from wrapping the lines
    if "=" in deployment:
        name = deployment.partition("=")[0]
        raise click.UsageError(f"Give the deployment first: windlass env set DEPLOYMENT {name}=...")
    given: Sequence[Given | Managed]
    if credential or provider:
        if file or secret is not None or (credential and provider):
            raise click.UsageError(
                "--from and --from-default go with no other source, and without --secret and --plain."
            )
        given = _managed(pairs, credential, provider, secret_name)
    elif secret_name:
        raise click.UsageError("--secret-name goes with --from CREDENTIAL or --from-default PROVIDER.")
    else:
        values = [*(env_file(file, secret=secret) if file else []), *_from_arguments(deployment, pairs, secret)]
        given = _together(values)
    if not given:
        raise click.UsageError("Give NAME=VALUE, NAME, or --from-file FILE.")
    body = {"variables": [one.to_json() for one in given]}
    rows = control.send("PUT", "deployments", deployment, "variables", body=body)["items"]
    if json_output:
        print_json([{"name": one.name, "secret": one.secret} for one in given])
    _notify_set(control, deployment, given, _at_deploy(given, rows))


def _notify_set(
    control: ControlSession, deployment: str, given: Sequence[Given | Managed], later: Collection[str]
) -> None:
    if now := [one for one in given if one.name not in later]:
        notify(f"Set for {deployment}, from the next kickoff on: {in_words(now)}")
    if later:
        is_of_dev = deployment in control.server.served
        again = "start windlass dev again" if is_of_dev else f"windlass deployments redeploy {deployment}"
        notify(
            f"Set for {deployment}, from the next deploy on: {', '.join(sorted(later))}. To read "
            f"{'them' if len(later) > 1 else 'it'} now: {again}"
        )


def _managed(
    pairs: tuple[str, ...], credential: str | None, provider: str | None, secret_name: str | None
) -> list[Managed]:
    source = (
        {"type": "credential", "credential": credential} if credential else {"type": "default", "provider": provider}
    )
    given = {name: value or secret_name for name, _, value in (pair.partition("=") for pair in pairs)}
    if missing := [name for name, secret in given.items() if not secret]:
        raise click.UsageError(
            f"Give the name of the secret of {missing[0]}: --secret-name NAME, or {missing[0]}=NAME."
        )
    return [
        Managed(_checked_name(name), {k: v for k, v in source.items() if v}, secret or "")
        for name, secret in given.items()
    ]


def _at_deploy(given: Iterable[Given | Managed], rows: list[dict[str, Any]]) -> set[str]:
    """Returns the names of the variables that are read at the next deploy."""
    read = {row["name"]: row.get("read") for row in rows}
    return {one.name for one in given if read.get(one.name) == "at deploy"}


def _from_arguments(deployment: str, pairs: tuple[str, ...], secret: bool | None) -> Iterable[Given]:
    alone = [pair for pair in pairs if "=" not in pair]
    if len(alone) > 1 and not sys.stdin.isatty():
        raise click.UsageError("Only one value can be read from standard input. Use --from-file for several.")
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            yield Given(_checked_name(name), _asked(name), secret is None or secret)
            continue
        one = _given(name, value, secret)
        if one.secret:
            notify(
                f"warning: every user of this machine can see a command line, also the value of {name}. Next time: "
                f"windlass env set {deployment} {name}, which asks for the value."
            )
        yield one


def _asked(name: str) -> str | None:
    """Returns the value, None for an empty one: the variable then keeps its value."""
    if sys.stdin.isatty():
        text = f"{name} (empty: keep its value)"
        return click.prompt(text, default="", show_default=False, hide_input=True, err=True) or None
    return sys.stdin.read(LONGEST_FILE).rstrip("\r\n") or None


def _together(given: list[Given]) -> list[Given]:
    """Returns the last one of each name."""
    return list({one.name: one for one in given}.values())


def in_words(given: Iterable[Given | Managed]) -> str:
    return ", ".join(f"{one.name} (secret)" if one.secret else one.name for one in given)


@env.command
@click.argument("deployment", shell_complete=complete_crew)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_option
@server_options
def unset(deployment: str, names: tuple[str, ...], *, control: ControlSession, json_output: bool) -> None:
    """Remove variables of a deployment, from the next kickoff on."""
    for name in names:
        control.send("DELETE", "deployments", deployment, "variables", name)
    if json_output:
        print_json([{"name": name} for name in names])
    notify(f"Removed from {deployment}: {', '.join(names)}")

"""Logs in to servers, so that commands use them."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from windlass.cli.lists import ListByDefault
from windlass.cli.printing import json_option, notify, print_json, print_table
from windlass.cli.profiles import LOCAL, Profile, Profiles, Server
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADINGS = ("PROFILE", "USER", "URL", "CURRENT")
LONGEST_TOKEN = 4096


def profile_name(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and (value == LOCAL or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", value)):
        raise click.BadParameter(f"{value!r}: give letters, digits, dots and hyphens, and not `{LOCAL}`.")
    return value


def server_url(_: click.Context, __: click.Parameter, value: str) -> str:
    from windlass.client.transport import address

    try:
        return address(value)
    except WindlassError:
        raise click.BadParameter(f"{value!r} is no address of a server such as https://crews.example.com") from None


@click.command
@click.argument("url", callback=server_url)
@click.option("--name", metavar="NAME", callback=profile_name, help="Name of the profile, by default the host's name.")
@json_option
def login(url: str, name: str | None, *, json_output: bool) -> None:
    """Log in to a server, so that commands use it.

    URL is the server's address, such as https://crews.example.com. The command asks for a personal token, or reads it
    from standard input. An owner of the server creates one with `windlass tokens create --personal --user NAME`.

    Server and token become the current profile, in a file that only you can read. `windlass profiles` lists the
    profiles, and `windlass logout` removes one.
    """
    from windlass.cli.servers import control_of
    from windlass.config import server_of_commands
    from windlass.secrets.secret import Secret

    token = _token()
    name = name or re.sub(r"[^A-Za-z0-9.-]", "-", urlsplit(url).netloc) or "server"
    with control_of(Server(url, Secret(token), name)) as control:
        me = control.get("me")
    profiles = Profiles.load()
    profiles.profiles[name] = Profile(url, token, str(me["user"]))
    profiles.current = name
    profiles.save()
    if json_output:
        print_json({"profile": name, "url": url, "user": me["user"], "role": me["role"]})
    notify(f"You are logged in to {url} as {me['user']}, with the role {me['role']}. Commands use this server now.")
    if "token" in me:
        notify(validity(me["token"]))
    if server_of_commands()[1]:
        notify("warning: WINDLASS_URL is set, and commands use that server before this one. Unset it.")
    notify(f"It is the profile {name}. For this machine's server again: windlass profiles use {LOCAL}")


def validity(token: Mapping[str, Any]) -> str:
    """Returns how long a token is valid, from the answer of GET /me."""
    ends, sign_in = token.get("expires_at"), token.get("sign_in_until")
    words = f"The token expires on {ends[:10]}." if ends else "The token does not expire."
    return f"{words} It needs a sign-in to the dashboard after {sign_in[:10]}." if sign_in else words


def _token() -> str:
    if sys.stdin.isatty():
        token = str(click.prompt("Personal token", hide_input=True, err=True)).strip()
    else:
        token = sys.stdin.read(LONGEST_TOKEN).strip()
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        raise click.UsageError("There is no valid token. Enter one when asked, or pass it on standard input.")
    return token


@click.command
@click.argument("name", required=False)
@json_option
def logout(name: str | None, *, json_output: bool) -> None:
    """Log out of a server: forget its address and token.

    NAME is the profile, by default the current one. The token itself stays valid until it is revoked.
    """
    profiles = Profiles.load()
    name = name or profiles.current
    if profiles.get(name) is None:
        raise WindlassError("You are not logged in to a server.", "`windlass profiles` lists the profiles.")
    removed = profiles.profiles.pop(name)
    profiles.current = LOCAL if profiles.current == name else profiles.current
    profiles.save()
    if json_output:
        print_json({"profile": name, "url": removed.url})
    notify(f"The profile {name} is removed. Its token for {removed.url} stays valid until it is revoked or expires.")


@click.group(cls=ListByDefault)
def profiles() -> None:
    """List the servers that you are logged in to, and choose one.

    Without a command it lists: `windlass profiles`.
    """


@profiles.command("list")
@json_option
def list_(*, json_output: bool) -> None:
    """List the profiles. `local` is the server that runs on this WINDLASS_HOME."""
    loaded = Profiles.load()
    rows: list[dict[str, Any]] = [{"profile": LOCAL, "user": None, "url": None, "current": loaded.current == LOCAL}]
    for name, one in loaded.profiles.items():
        rows.append({"profile": name, "user": one.user, "url": one.url, "current": loaded.current == name})
    if json_output:
        print_json(rows)
        return
    here = "(this machine's server)"
    cells = [[row["profile"], row["user"] or "-", row["url"] or here, "yes" if row["current"] else ""] for row in rows]
    print_table(HEADINGS, cells)


@profiles.command
@click.argument("name")
@json_option
def use(name: str, *, json_output: bool) -> None:
    """Make a profile the current one, which commands use."""
    loaded = Profiles.load()
    found = loaded.get(name)
    loaded.current = name
    loaded.save()
    if json_output:
        print_json({"profile": name})
    notify(f"Commands use {found.url if found else 'the server of this machine'} now.")

"""Creates, shows, lists, rotates and revokes API tokens."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.lists import ListByDefault, print_page, second
from windlass.cli.printing import json_option, notify, print_json, print_result
from windlass.cli.servers import chosen_server, control_of, demand_local, server_options
from windlass.errors import WindlassError
from windlass.rights import SCOPES_OF_KIND
from windlass.secrets.secret import TokenKind

if TYPE_CHECKING:
    from windlass.access.tokens import ShownTokens
    from windlass.administration.opening import Administration
    from windlass.cli.control_session import ControlSession
    from windlass.secrets.secret import Secret
    from windlass.store.deployments import Deployment

MOST_TOKENS = 100_000
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
HEADINGS = ("LAST4", "KIND", "SCOPES", "CREW", "USER", "PROFILE", "LAST USED", "EXPIRES", "STATE", "ID")
SCOPES = ("read", "run", "admin")


def duration(_: click.Context, __: click.Parameter, value: str | None) -> timedelta | None:
    found = re.fullmatch(r"(\d{1,5})([mhdw])", value) if value is not None else None
    if value is not None and (found is None or int(found[1]) == 0):
        raise click.BadParameter(f"{value!r}: give a number and m, h, d or w, such as 30d.")
    return timedelta(**{UNITS[found[2]]: int(found[1])}) if found else None


@click.group(cls=ListByDefault)
def tokens() -> None:
    """Create, show, list, rotate and revoke API tokens.

    Tokens go to standard output, all other text to standard error. docs/how-to/tokens.md lists the rights of each kind.
    Without a command it lists: `windlass tokens`.
    """


@tokens.command
@click.option("--deployment", metavar="DEPLOYMENT", help="Only the tokens of this crew.")
@click.option("--kind", type=click.Choice(["organization", "user"]), help="Only the token of this kind.")
@json_option
def show(deployment: str | None, kind: str | None, *, json_output: bool) -> None:
    """Show the two tokens of each served crew, with its base URL. Without a server, show those of every crew."""
    demand_local()
    from windlass.cli.this_server import administer, local_url, running_server
    from windlass.config import load

    settings = load()
    server = settings.public_url or local_url(settings)
    served = running_server(settings)
    wanted = [deployment] if deployment else served[1] if served else []
    shown = administer(settings, lambda opened: _shown(opened, wanted))
    if json_output:
        print_json([_shown_facts(crew, tokens, kind, server) for crew, tokens in shown])
        return
    for crew, tokens in shown:
        notify(f"The crew {crew.slug}, at {server}/crews/{crew.slug}")
        _give_shown(tokens, kind)


async def _shown(opened: Administration, slugs: list[str]) -> list[tuple[Deployment, ShownTokens]]:
    from windlass.cli.this_server import chosen_deployment

    known = [row["slug"] for row in await opened.deployments.all()]
    wanted = [slug for slug in slugs if slug in known] or slugs or known or [None]
    crews = [await chosen_deployment(opened.deployments, one) for one in wanted]
    return [(crew, await opened.tokens.show(crew)) for crew in crews]


def _shown_facts(crew: Deployment, tokens: ShownTokens, kind: str | None, server: str) -> dict[str, Any]:
    return {
        "deployment": crew.slug,
        "base_url": f"{server}/crews/{crew.slug}",
        "organization_token": tokens.organization.reveal() if kind != "user" else None,
        "user_token": tokens.user.reveal() if kind != "organization" else None,
        "user": tokens.user_name,
    }


def _give_shown(tokens: ShownTokens, kind: str | None) -> None:
    if kind != "user":
        notify("  Bearer Token, of the organization: may do everything on this crew but delete kickoffs")
        print_result(tokens.organization.reveal())
    if kind != "organization":
        notify(f"  User Bearer Token, of {tokens.user_name}: sees the kickoffs of this user only")
        print_result(tokens.user.reveal())


@tokens.command
@click.option(
    "--deployment", metavar="DEPLOYMENT", help="The crew that the token is for. Needed only if there are several crews."
)
@click.option(
    "--personal",
    is_flag=True,
    help="A personal token, for the control API and all crews, with the rights of its user's role.",
)
@click.option("--name", metavar="NAME", help="With --personal: a name by which its user recognises it.")
@click.option("--all-deployments", is_flag=True, help="Make the token valid for every crew, also for later ones.")
@click.option(
    "--user", metavar="NAME", help="A User Bearer Token of this user (windlass admin users add NAME adds one)."
)
@click.option(
    "--profile",
    type=click.Choice(["documented", "live"]),
    help="The form of the status that its clients get, in place of the crew's own.",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    help="A right of the token. The option can be repeated. By default, all rights of its kind.",
)
@click.option("--read-only", is_flag=True, help="Short for --scope read.")
@click.option(
    "--expires",
    "--expires-in",
    "expires_in",
    metavar="TIME",
    callback=duration,
    help="How long it is valid: 45m, 12h, 30d, 8w. By default, for ever.",
)
@json_option
def create(
    *,
    personal: bool,
    name: str | None,
    deployment: str | None,
    all_deployments: bool,
    user: str | None,
    profile: str | None,
    scopes: tuple[str, ...],
    read_only: bool,
    expires_in: timedelta | None,
    json_output: bool,
) -> None:
    """Create a token, and print it. It is not shown again.

    With --personal it is for a person or a program that deploys: `windlass login` and WINDLASS_API_TOKEN take it.
    Without --user, it is one of your own.
    """
    if personal:
        if deployment or all_deployments or profile or scopes or read_only:
            raise click.UsageError("With --personal, give only --user, --name and --expires. The role decides.")
        _create_personal(user, name or "personal", expires_in, json_output=json_output)
        return
    if name:
        raise click.UsageError("--name is for --personal.")
    demand_local()
    from windlass.cli.this_server import administer, chosen_deployment
    from windlass.config import load
    from windlass.rights import Scope

    if deployment and all_deployments:
        raise click.UsageError("Give --deployment or --all-deployments, not both.")
    if read_only and scopes:
        raise click.UsageError("Give --read-only or --scope, not both.")
    chosen = [Scope.READ] if read_only else [Scope(scope) for scope in scopes]

    async def made(opened: Administration) -> tuple[Deployment | None, Secret]:
        crew = None if all_deployments else await chosen_deployment(opened.deployments, deployment)
        token = await opened.tokens.create(
            crew.id if crew else None,
            user=await opened.tokens.enabled_user(user) if user else None,
            profile=profile,
            expires_at=datetime.now(UTC) + expires_in if expires_in else None,
            scopes=chosen or None,
        )
        return crew, token

    crew, token = administer(load(), made)
    if json_output:
        print_json({"token": token.reveal(), "deployment": crew.slug if crew else None})
    else:
        print_result(token.reveal())
    notify(f"It opens {f'the crew {crew.slug}' if crew else 'every crew'}. It is not shown again.")


def _create_personal(user: str | None, name: str, expires_in: timedelta | None, *, json_output: bool) -> None:
    days = expires_in / timedelta(days=1) if expires_in else None
    with control_of(chosen_server(None)) as control:
        answer = control.send("POST", "tokens", body={"name": name, "expires_in_days": days, "user": user})
    made = {member: answer[member] for member in ("token", "user", "expires_at")}
    if json_output:
        print_json(made)
    else:
        print_result(made["token"])
    notify(f"It is a personal token of {made['user']}, with the rights of the user's role. It is not shown again.")


@tokens.command("list")
@click.option("--all", "revoked_too", is_flag=True, help="Also those that are revoked or have expired.")
@json_option
@server_options
def list_(*, control: ControlSession, revoked_too: bool, json_output: bool) -> None:
    """List tokens, by their last four characters.

    An owner sees all of them, and others see their own. Times are UTC.
    """
    found, _ = control.pages("tokens", limit=MOST_TOKENS, revoked=revoked_too or None)
    at = datetime.now(UTC)
    rows = [_facts(row, at) for row in found]
    empty = "There are no tokens yet: `windlass tokens show` creates the first two of each crew."
    print_page((rows, None), HEADINGS, _cells, empty=empty, json_output=json_output)


@tokens.command
@click.argument("name")
@json_option
@server_options
def revoke(name: str, *, control: ControlSession, json_output: bool) -> None:
    """Revoke a token: every server refuses it within a second.

    NAME is its id or its last four characters. Kickoffs that were started with it continue.
    """
    rows, _ = control.pages("tokens", limit=MOST_TOKENS)
    found = [row["id"] for row in rows if name in {row["id"], row["last_four"]}]
    if len(found) != 1:
        what = "More than one token ends in" if found else "There is no token that you may revoke with the name"
        raise WindlassError(f"{what} {name!r}.", "Use an id of: windlass tokens list")
    control.send("DELETE", "tokens", found[0])
    if json_output:
        print_json({"id": found[0], "state": "revoked"})
    notify(f"The token {found[0]} is revoked.")


@tokens.command
@click.argument("name")
@json_option
def rotate(name: str, *, json_output: bool) -> None:
    """Revoke a token, and create one with the same rights.

    NAME is its id or its last four characters.
    """
    demand_local()
    from windlass.cli.this_server import administer
    from windlass.config import load

    token = administer(load(), lambda opened: opened.tokens.rotate(name))
    if json_output:
        print_json({"token": token.reveal()})
    else:
        print_result(token.reveal())
    notify("The old one is revoked. Give this one to the clients that used it.")


def _facts(row: dict[str, Any], at: datetime) -> dict[str, Any]:
    members = (
        "id",
        "last_four",
        "kind",
        "name",
        "deployment",
        "user",
        "profile",
        "last_used_at",
        "expires_at",
        "sign_in_until",
    )
    return {name: row[name] for name in members} | {"scopes": _scopes(row), "state": _state(row, at)}


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["last_four"],
        f"{row['kind']} ({row['name']})" if row["name"] else row["kind"],
        ",".join(row["scopes"] or ["(role)"]),
        row["deployment"] or "(all)",
        row["user"] or "-",
        row["profile"] or "-",
        second(row["last_used_at"]),
        second(row["expires_at"]),
        row["state"],
        str(row["id"]),
    ]


def _scopes(row: dict[str, Any]) -> list[str]:
    """Returns no scopes for a personal token: the role of its user decides at each request."""
    return [] if row["kind"] == TokenKind.PERSONAL else list(row["scopes"] or SCOPES_OF_KIND[row["kind"]])


def _state(row: dict[str, Any], at: datetime) -> str:
    if row["revoked_at"]:
        return "revoked"
    if _is_over(row["expires_at"], at):
        return "expired"
    if row["disabled_at"]:
        return "disabled"
    if _is_over(row["sign_in_until"], at):
        return "needs a sign-in"
    return "shown" if row["shown"] else "valid"


def _is_over(end: str | None, at: datetime) -> bool:
    return end is not None and datetime.fromisoformat(end) <= at

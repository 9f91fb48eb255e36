from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.printing import give, say
from windlass.cli.tables import columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windlass.lifecycle.tokens import ShownTokens
    from windlass.store.deployments import Deployment
    from windlass.vault.secret import Secret
    from windlass.wiring.ground import Administration

UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
HEADINGS = ("LAST4", "KIND", "CREW", "USER", "PROFILE", "LAST USED", "EXPIRES", "STATE", "ID")


def duration(_: click.Context, __: click.Parameter, value: str | None) -> timedelta | None:
    found = re.fullmatch(r"(\d{1,5})([mhdw])", value) if value is not None else None
    if value is not None and (found is None or int(found[1]) == 0):
        raise click.BadParameter(f"{value!r}: give a number and m, h, d or w, such as 30d.")
    return timedelta(**{UNITS[found[2]]: int(found[1])}) if found else None


@click.group
def command() -> None:
    """Make, show, list, rotate and revoke API tokens.

    Tokens go to standard output, every other word to standard error. docs/tokens.md tells what each kind may do.
    """


@command.command
@click.option("--deployment", metavar="SLUG", help="Only this crew's.")
@click.option("--kind", type=click.Choice(["organization", "user"]), help="Only the token of this kind.")
def show(deployment: str | None, kind: str | None) -> None:
    """Show the two tokens of the crew that is served, with its base URL; of every crew when no server runs."""
    from windlass.cli.addresses import local_url, running_server
    from windlass.cli.administering import administer
    from windlass.config import load

    settings = load()
    server = settings.public_url or local_url(settings)
    served = running_server(settings)
    wanted = deployment or (served[1] if served else None)
    for crew, tokens in administer(settings, lambda opened: _shown(opened, wanted)):
        say(f"The crew {crew.slug}, at {server}/crews/{crew.slug}")
        _give_shown(tokens, kind)


async def _shown(opened: Administration, slug: str | None) -> list[tuple[Deployment, ShownTokens]]:
    from windlass.cli.administering import chosen_deployment

    slugs = [row["slug"] for row in await opened.deployments.all()]
    wanted = slugs if slug is None and slugs else [slug]
    crews = [await chosen_deployment(opened.deployments, one) for one in wanted]
    return [(crew, await opened.tokens.show(crew)) for crew in crews]


def _give_shown(tokens: ShownTokens, kind: str | None) -> None:
    if kind != "user":
        say("  Bearer Token, of the organization: may do everything on this crew")
        give(tokens.organization.reveal())
    if kind != "organization":
        say(f"  User Bearer Token, of {tokens.user_name}: sees the kickoffs of this user only")
        give(tokens.user.reveal())


@command.command
@click.option("--deployment", metavar="SLUG", help="The crew that it opens; may be left out when there is only one.")
@click.option("--all-deployments", is_flag=True, help="It opens every crew, those of the future too.")
@click.option("--user", metavar="NAME", help="A User Bearer Token of this user (windlass users add NAME makes one).")
@click.option(
    "--profile",
    type=click.Choice(["documented", "live"]),
    help="The form of the status that its clients get, in place of the crew's own.",
)
@click.option(
    "--expires-in", metavar="TIME", callback=duration, help="How long it is valid: 45m, 12h, 30d, 8w. Else for ever."
)
def create(
    *,
    deployment: str | None,
    all_deployments: bool,
    user: str | None,
    profile: str | None,
    expires_in: timedelta | None,
) -> None:
    """Make a further token, which is shown this once."""
    from windlass.cli.administering import administer, chosen_deployment
    from windlass.config import load

    if deployment and all_deployments:
        raise click.UsageError("Give --deployment or --all-deployments, not both.")

    async def made(opened: Administration) -> tuple[Deployment | None, Secret]:
        crew = None if all_deployments else await chosen_deployment(opened.deployments, deployment)
        token = await opened.tokens.create(
            crew.id if crew else None,
            user=await opened.tokens.user(user) if user else None,
            profile=profile,
            expires_at=datetime.now(UTC) + expires_in if expires_in else None,
        )
        return crew, token

    crew, token = administer(load(), made)
    give(token.reveal())
    say(f"It opens {f'the crew {crew.slug}' if crew else 'every crew'}. It is not shown again.")


@command.command("list")
@click.option("--all", "revoked_too", is_flag=True, help="Also those that are revoked or have expired.")
def list_(*, revoked_too: bool) -> None:
    """List tokens, by their last four characters."""
    from windlass.cli.administering import administer
    from windlass.config import load

    rows = administer(load(), lambda opened: opened.tokens.all(revoked_too=revoked_too))
    for line in token_lines(rows, datetime.now(UTC)) if rows else ():
        give(line)
    if not rows:
        say("There are no tokens yet: `windlass tokens show` makes the first two of each crew.")


@command.command
@click.argument("name")
def revoke(name: str) -> None:
    """End a token, which every server refuses within a second.

    NAME is its id or its last four characters. Kickoffs that were started with it go on.
    """
    from windlass.cli.administering import administer
    from windlass.config import load

    row = administer(load(), lambda opened: opened.tokens.revoke(name))
    say(f"The token {row.id} is revoked.")


@command.command
@click.argument("name")
def rotate(name: str) -> None:
    """End a token, and make another that may do the same.

    NAME is its id or its last four characters.
    """
    from windlass.cli.administering import administer
    from windlass.config import load

    token = administer(load(), lambda opened: opened.tokens.rotate(name))
    give(token.reveal())
    say("The old one is revoked. Give this one to the clients that used it.")


def token_lines(rows: Iterable[dict[str, Any]], at: datetime) -> list[str]:
    return columns([HEADINGS, *(_cells(row, at) for row in rows)])


def _cells(row: dict[str, Any], at: datetime) -> list[str]:
    return [
        row["last_four"],
        row["kind"],
        row["deployment"] or "(all)",
        row["user"] or "-",
        row["profile"] or "-",
        _minute(row["last_used_at"]),
        _minute(row["expires_at"]),
        _state(row, at),
        str(row["id"]),
    ]


def _state(row: dict[str, Any], at: datetime) -> str:
    if row["revoked_at"]:
        return "revoked"
    if row["expires_at"] and row["expires_at"] <= at:
        return "expired"
    return "shown" if row["shown"] else "valid"


def _minute(at: datetime | None) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%MZ}" if at else "-"

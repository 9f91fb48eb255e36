"""Shows the identity of the server, and rotates the key that signs its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from windlass.cli.lists import ShowByDefault, second
from windlass.cli.printing import columns, json_option, notify, print_json, print_result
from windlass.cli.servers import server_options

if TYPE_CHECKING:
    from windlass.cli.control_session import ControlSession


@click.group(cls=ShowByDefault)
def identity() -> None:
    """Show who the server is to cloud providers and Vault.

    The server is an OIDC issuer. With a credential of the method workload_identity, it proves its identity with tokens
    that it signs, so no password of the provider is stored. `windlass admin identity` alone is `windlass admin identity
    show`.
    """


@identity.command
@click.option("--provider", metavar="NAME", help="Only the values for this provider of secrets.")
@json_option
@server_options
def show(*, control: ControlSession, provider: str | None, json_output: bool) -> None:
    """Print the issuer, the subject and the values to paste at each provider.

    Makes the first signing key if the server has none. Needs the role owner.
    """
    found = control.get("identity")
    if provider and provider not in found["providers"]:
        raise click.UsageError(f"There is no provider {provider!r}: {', '.join(found['providers'])}.")
    if json_output:
        print_json(found)
    else:
        shown = [provider] if provider else list(found["providers"])
        parts = [_of_server(found), *(_of_provider(found["providers"][name]) for name in shown)]
        print_result("\n\n".join(parts))
    _warn(found)


def _of_server(found: dict[str, Any]) -> str:
    rows = [
        ("Issuer", found["issuer"]),
        ("Discovery", found["discovery_url"]),
        ("Public keys", found["jwks_url"]),
        ("Organization", found["organization_id"]),
        ("Subject", found["subject"]),
        *(("Signing key", _key(key)) for key in found["keys"]),
    ]
    return "\n".join(columns(rows))


def _key(key: dict[str, Any]) -> str:
    if key["state"] == "waiting":
        return f"{key['id']} (signs from {second(key['signs_from'])} UTC on)"
    return f"{key['id']} ({key['state']})"


def _of_provider(found: dict[str, Any]) -> str:
    rows = [("  Audience", found["audience"])] if found["audience"] not in found["values"].values() else []
    rows += [(f"  {label}", value) for label, value in found["values"].items()]
    commands = "\n".join(f"    {line}" for line in found["commands"].splitlines())
    return "\n".join([found["title"], *columns(rows), "  Commands:", commands])


def _warn(found: dict[str, Any]) -> None:
    if found["warning"]:
        notify(f"warning: {found['warning']} Set OIDC_ISSUER or WINDLASS_PUBLIC_URL to its https address.")


@identity.command
@click.option("--now", is_flag=True, help="Let the new key sign at once, or the key that waits.")
@click.option("--compromised", is_flag=True, help="An old key is in wrong hands: remove all other keys at once.")
@json_option
@server_options
def rotate(*, control: ControlSession, now: bool, compromised: bool, json_output: bool) -> None:
    """Replace the key that signs the server's tokens.

    The new key is published at once, and signs after 24 hours, when all providers know it. The old key stays published
    while its tokens are valid; a later rotation removes it. Needs the role owner.
    """
    found = control.send("POST", "identity", "rotate", body={"now": now, "compromised": compromised})
    if json_output:
        print_json(found)
    else:
        print_result("\n".join(columns([("Signing key", _key(key)) for key in found["keys"]])))
    if now or compromised:
        notify("The new key signs from now on. Providers that cache the keys may refuse tokens for some minutes.")

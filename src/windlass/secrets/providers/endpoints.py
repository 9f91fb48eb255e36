"""Endpoints of cloud providers in place of the public ones: private endpoints in a company's network, and tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from windlass.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

SETTING = "WINDLASS_SECRET_ENDPOINTS"
CA_FILE = "azure.ca"
ADDRESSES = ("aws.secretsmanager", "aws.sts", "google.secretmanager", "google.sts", "azure.authority", "azure.vault")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """None stands for the public endpoint. Only the setting of the server sets one, never a credential: a token of the
    server is sent there.

    `azure_vault` replaces the host of every Key Vault, and `azure_ca` is a file with the certificates that sign those
    of the two hosts of Azure.
    """

    aws_secretsmanager: str | None = None
    aws_sts: str | None = None
    google_secretmanager: str | None = None
    google_sts: str | None = None
    azure_authority: str | None = None
    azure_vault: str | None = None
    azure_ca: str | None = None

    @classmethod
    def parsed(cls, entries: Iterable[str]) -> Self:
        """Reads entries such as `aws.sts=https://sts.internal`. Raises SettingsError."""
        found: dict[str, str] = {}
        for entry in entries:
            name, _, value = entry.partition("=")
            _check(name, value)
            found[name.replace(".", "_")] = value if name == CA_FILE else value.rstrip("/")
        return cls(**found)


def _check(name: str, value: str) -> None:
    if name not in (*ADDRESSES, CA_FILE):
        raise SettingsError(
            f"{SETTING}: there is no endpoint {name[:100]!r}.", f"There are: {', '.join((*ADDRESSES, CA_FILE))}."
        )
    if name == CA_FILE:
        if not Path(value).is_file():
            raise SettingsError(f"{SETTING}: {name} names no file.", "Give the path of a file with certificates.")
        return
    try:
        parts = urlsplit(value)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and not (parts.query or parts.username)
    except ValueError:
        valid = False
    if not valid:
        raise SettingsError(
            f"{SETTING}: the value of {name} is no address.", f"Write it as {name}=https://host.example.com."
        )

"""The methods of Azure Key Vault, by which a credential connects."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from windlass.secrets.provider import WORKLOAD_IDENTITY
from windlass.secrets.providers.configuration import Configuration, SecretText, form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

TITLE = "Azure Key Vault"
AUDIENCE = "api://AzureADTokenExchange"
AUTHORITIES = {
    "vault.azure.net": "https://login.microsoftonline.com",
    "vault.azure.cn": "https://login.chinacloudapi.cn",
    "vault.usgovcloudapi.net": "https://login.microsoftonline.us",
}
"""The hosts of Key Vaults, by cloud, and the address that gives tokens for them. Tokens are sent to no other host."""
VAULT = re.compile(
    rf"(?:https://)?([a-zA-Z0-9-]{{3,24}})\.({'|'.join(map(re.escape, AUTHORITIES))})(?::443)?/?", re.ASCII
)


def _vault_url(value: str) -> str:
    found = VAULT.fullmatch(value.strip())
    if not found:
        raise ValueError(f"must be the address of a Key Vault, such as https://my-vault.{next(iter(AUTHORITIES))}")
    return f"https://{found[1].lower()}.{found[2]}"


Guid = Annotated[
    str,
    form(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "an ID such as 11111111-2222-4333-8444-555566667777"),
]


class _OfApplication(Configuration):
    vault_url: Annotated[str, AfterValidator(_vault_url)] = Field(
        description="Address of the Key Vault.", examples=["https://my-vault.vault.azure.net"]
    )
    tenant_id: Guid = Field(description="Directory (tenant) ID of the Key Vault and of the application.")
    client_id: Guid = Field(description="Application (client) ID.")

    @property
    def domain(self) -> str:
        """The domain of the Key Vaults of this cloud."""
        return self.vault_url.partition(".")[2]


class ClientSecret(_OfApplication):
    """A client secret of an application."""

    client_secret: SecretText = Field(description="Value of a client secret of the application, not its ID.")


class WorkloadIdentity(_OfApplication):
    """The server's own identity, as a federated credential of an application."""


METHODS: Mapping[str, type[BaseModel]] = {
    "client_secret": ClientSecret,
    WORKLOAD_IDENTITY: WorkloadIdentity,
}

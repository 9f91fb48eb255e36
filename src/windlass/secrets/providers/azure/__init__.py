"""Azure Key Vault."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator, Field

from windlass.secrets.provider import WORKLOAD_IDENTITY, BadCredential, IdentityValues
from windlass.secrets.providers.configuration import Configuration, SecretText, form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from windlass.secrets.provider import Manager, Subject
    from windlass.secrets.providers.endpoints import Endpoints

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
NAME = re.compile(r"[0-9A-Za-z_-]{1,127}")


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


class Azure:
    name: ClassVar[str] = "azure"
    title: ClassVar[str] = "Azure Key Vault"
    extra: ClassVar[str | None] = "azure"
    methods: ClassVar[Mapping[str, type[BaseModel]]] = {
        "client_secret": ClientSecret,
        WORKLOAD_IDENTITY: WorkloadIdentity,
    }

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints

    def connect(self, method: str, configuration: BaseModel, subject: Subject) -> Manager:
        from windlass.secrets.providers.azure.manager import connected  # noqa: PLC0415 - imports the client

        return connected(method, configuration, subject, self._endpoints)

    def check_name(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise BadCredential(
                f"{name[:200]!r} is no name of a secret of Azure.",
                "A name has letters, digits and hyphens, at most 127 of them. An underscore stands for a hyphen.",
            )

    def identity_values(self, issuer: str, subject: str) -> IdentityValues:
        federated = json.dumps({"name": "windlass", "issuer": issuer, "subject": subject, "audiences": [AUDIENCE]})
        return IdentityValues(
            AUDIENCE,
            {"Issuer": issuer, "Subject identifier": subject, "Audience": AUDIENCE},
            "az ad app create --display-name windlass\n"
            "az ad sp create --id CLIENT_ID\n"
            f"az ad app federated-credential create --id CLIENT_ID --parameters '{federated}'\n"
            "az role assignment create --assignee CLIENT_ID --role 'Key Vault Secrets User' --scope KEY_VAULT_ID",
        )

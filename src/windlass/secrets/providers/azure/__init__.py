"""Azure Key Vault."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from windlass.secrets.provider import BadCredential, IdentityValues, Provider
from windlass.secrets.providers.azure.methods import AUDIENCE, METHODS, TITLE

if TYPE_CHECKING:
    from windlass.secrets.provider import Manager, Subject

NAME = re.compile(r"[0-9A-Za-z_-]{1,127}")


class Azure(Provider):
    name = "azure"
    title = TITLE
    extra = "azure"
    methods = METHODS

    def connect(self, configuration: Any, subject: Subject) -> Manager:
        from windlass.secrets.providers.azure.manager import AzureManager  # noqa: PLC0415 - imports the client

        return AzureManager(configuration, subject, self._endpoints)

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

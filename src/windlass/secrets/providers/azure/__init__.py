"""Azure Key Vault."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, ClassVar

from windlass.secrets.provider import BadCredential, IdentityValues
from windlass.secrets.providers.azure.methods import AUDIENCE, METHODS, TITLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from windlass.secrets.provider import Manager, Subject
    from windlass.secrets.providers.endpoints import Endpoints

NAME = re.compile(r"[0-9A-Za-z_-]{1,127}")


class Azure:
    name: ClassVar[str] = "azure"
    title: ClassVar[str] = TITLE
    extra: ClassVar[str | None] = "azure"
    methods: ClassVar[Mapping[str, type[BaseModel]]] = METHODS

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

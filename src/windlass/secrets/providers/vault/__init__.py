"""HashiCorp Vault and OpenBao: secrets of the KV engine, version 2."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from windlass.secrets.provider import BadCredential, IdentityValues, Provider
from windlass.secrets.providers.vault.methods import METHODS, TITLE

if TYPE_CHECKING:
    from windlass.secrets.provider import Manager, Subject

NAME = re.compile(r"[^\x00-\x1f\x7f/]+(?:/[^\x00-\x1f\x7f/]+)*")
LONGEST_NAME = 512


class Vault(Provider):
    name = "vault"
    title = TITLE
    methods = METHODS

    def connect(self, configuration: Any, subject: Subject) -> Manager:
        from windlass.secrets.providers.vault.manager import VaultManager  # noqa: PLC0415 - imports the client

        return VaultManager(configuration, subject)

    def check_name(self, name: str) -> None:
        if not NAME.fullmatch(name) or len(name) > LONGEST_NAME or {".", ".."} & set(name.split("/")):
            raise BadCredential(
                f"{name[:200]!r} is no path of a secret of Vault.",
                "Give the path below the KV engine, without `data/` and without a slash at its ends, such as app/db.",
            )

    def identity_values(self, issuer: str, subject: str) -> IdentityValues:
        audience = "ADDRESS_OF_VAULT"
        return IdentityValues(
            audience,
            {
                "oidc_discovery_url": issuer,
                "bound_issuer": issuer,
                "bound_audiences": audience,
                "bound_subject": subject,
            },
            "vault auth enable jwt\n"
            f"vault write auth/jwt/config oidc_discovery_url={issuer} bound_issuer={issuer}\n"
            'echo \'path "secret/data/app/*" { capabilities = ["read"] }\' | vault policy write windlass -\n'
            "vault write auth/jwt/role/windlass role_type=jwt user_claim=sub token_policies=windlass token_ttl=1h \\\n"
            f"  bound_audiences={audience} bound_subject={subject}",
        )

"""HashiCorp Vault and OpenBao: secrets of the KV engine, version 2."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from windlass.secrets.provider import BadCredential, IdentityValues
from windlass.secrets.providers.vault.methods import METHODS, TITLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from windlass.secrets.provider import Manager, Subject
    from windlass.secrets.providers.endpoints import Endpoints

NAME = re.compile(r"[^\x00-\x1f\x7f/]+(?:/[^\x00-\x1f\x7f/]+)*")
LONGEST_NAME = 512


class Vault:
    name: ClassVar[str] = "vault"
    title: ClassVar[str] = TITLE
    extra: ClassVar[str | None] = None
    methods: ClassVar[Mapping[str, type[BaseModel]]] = METHODS

    def __init__(self, endpoints: Endpoints) -> None:
        """Vault has no public endpoint: each credential has its address."""

    def connect(self, method: str, configuration: BaseModel, subject: Subject) -> Manager:
        from windlass.secrets.providers.vault.manager import connected  # noqa: PLC0415 - imports the client

        return connected(method, configuration, subject)

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

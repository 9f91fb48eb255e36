"""The methods of Vault, by which a credential connects."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING, Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints

from windlass.secrets.provider import WORKLOAD_IDENTITY
from windlass.secrets.providers.configuration import Configuration, SecretText, Text, form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

TITLE = "Vault"
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*", re.ASCII)


def _address(value: str) -> str:
    try:
        parts = urlsplit(value.rstrip("/"))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    plain = not (parts.username or parts.password or parts.path or parts.query or parts.fragment)
    if parts.scheme not in {"https", "http"} or not HOST.fullmatch(host) or not plain or "\\" in value:
        raise ValueError(
            "must be the address of a Vault without a path, a user or a password, such as https://vault.example.com:8200"
        )
    named = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{named}{f':{port}' if port is not None else ''}"


def _certificates(value: str) -> str:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=value)
    except (ssl.SSLError, ValueError):
        raise ValueError("must be certificates in PEM form") from None
    return value


def _own_audience(value: str) -> str:
    if value == "sts.amazonaws.com" or value.startswith("api://") or "iam.googleapis.com" in value:
        raise ValueError("is that of a cloud provider. The server sends no token for it to a Vault")
    return value


MountPath = Annotated[
    str,
    StringConstraints(max_length=256),
    form(r"[\w-][\w.-]*(/[\w-][\w.-]*)*", "a path without a slash at its ends, such as secret"),
]


class _AtAddress(Configuration):
    destinations: ClassVar[frozenset[str]] = frozenset({"address"})

    address: Annotated[str, StringConstraints(max_length=2000), AfterValidator(_address)] = Field(
        description="Address of the Vault or OpenBao server.", examples=["https://vault.example.com:8200"]
    )
    mount: MountPath = Field("secret", description="Path of the KV engine, version 2.")
    namespace: MountPath | None = Field(None, description="Namespace, where the server has them.")
    ca_certificate: Annotated[str, StringConstraints(max_length=64 * 1024), AfterValidator(_certificates)] | None = (
        Field(
            None,
            description="Certificates in PEM form, when the certificate of the server is signed by a CA of your own.",
        )
    )


class Token(_AtAddress):
    """A token."""

    token: SecretText = Field(description="Token that may read the secrets. It is not renewed.")


class AppRole(_AtAddress):
    """A role of the AppRole method."""

    role_id: Text = Field(description="Role ID.")
    secret_id: SecretText = Field(description="Secret ID of this role.")
    auth_path: MountPath = Field("approle", description="Path of the AppRole method.")


class WorkloadIdentity(_AtAddress):
    """The server's own identity, by the JWT method."""

    role: Text = Field(description="Role of the JWT method.", examples=["windlass"])
    auth_path: MountPath = Field("jwt", description="Path of the JWT method.")
    audience: Annotated[Text, AfterValidator(_own_audience)] | None = Field(
        None, description="Audience of the server's tokens, when it is not the address of the Vault."
    )


METHODS: Mapping[str, type[BaseModel]] = {
    "token": Token,
    "approle": AppRole,
    WORKLOAD_IDENTITY: WorkloadIdentity,
}

"""Reads Vault and OpenBao: three requests of their HTTP API."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from windlass.secrets.provider import (
    AccessDenied,
    BadCredential,
    CredentialRefused,
    Meaning,
    SecretError,
    SecretNotFound,
    first_meaning,
)
from windlass.secrets.providers.network import is_overloaded, unavailable
from windlass.secrets.providers.renewal import Renewed
from windlass.secrets.providers.vault.direct import Direct
from windlass.secrets.providers.vault.methods import TITLE, AppRole, Token, WorkloadIdentity

if TYPE_CHECKING:
    from windlass.secrets.provider import Subject

    Configuration = Token | AppRole | WorkloadIdentity

OK = 200
STANDBY = (472, 473)
REDIRECTS = range(300, 400)
HOUR = 3600.0
ANSWERS = (
    Meaning(
        "^404",
        SecretNotFound,
        "Vault has no such secret, or its latest version was deleted.",
        "Check the path, and that `mount` is a KV engine of version 2.",
    ),
    Meaning(
        "^40[13]",
        AccessDenied,
        "Vault does not let the credential read this path, or its token has ended.",
        "Its policy must allow `read` below data/ of the KV engine, and `list` below metadata/ to complete names.",
    ),
    Meaning(
        "^3",
        SecretError,
        "Vault answers with a redirect, which is not followed.",
        "Give the address that it leads to.",
    ),
)
"""What the status of an answer means."""
HANDSHAKES = (
    Meaning(
        "^40[34] .*permission denied",
        CredentialRefused,
        "Vault has no JWT method at auth_path.",
        "Run: vault auth enable -path=AUTH_PATH jwt",
    ),
    Meaning(
        r"^(?>.*?role )(?>.*?not (be )?found)",
        CredentialRefused,
        "The JWT method of Vault has no such role.",
        "Check `role` of the credential.",
    ),
    Meaning(
        r"audience|\(aud\)",
        CredentialRefused,
        "The role in Vault does not accept the audience of this server.",
        "Its bound_audiences must have the address of the Vault in the credential, or the credential's audience.",
    ),
    Meaning(
        "expired|not valid yet|in the future",
        CredentialRefused,
        "Vault considers the token of the server expired.",
        "Set the clock of the server.",
    ),
    Meaning(
        r"claim|subject|\(sub\)",
        CredentialRefused,
        "The role in Vault does not accept this server.",
        "Its bound_subject and bound_claims must fit the values that `windlass admin identity` prints.",
    ),
    Meaning(
        "fetching keys|connection refused|no such host",
        CredentialRefused,
        "Vault can't fetch the keys of this server from its issuer.",
        "Vault must reach the issuer; `windlass admin identity` prints its address.",
    ),
)
"""What the status and the errors of a login by JWT mean."""


class VaultManager:
    def __init__(self, configuration: Configuration, subject: Subject) -> None:
        self._configuration = configuration
        self._subject = subject
        self._direct = Direct(configuration.address, configuration.ca_certificate)
        self._token: Renewed[str] = Renewed(self._make_token, (AccessDenied, CredentialRefused))

    def read(self, name: str) -> str:
        """Returns the JSON object of the secret."""
        found = self._get("GET", f"{self._configuration.mount}/data/{_quoted(name)}").get("data")
        if not isinstance(found, dict):
            raise SecretNotFound("The secret has no value.", "Its latest version was deleted.")
        return json.dumps(found, ensure_ascii=False)

    def names(self, prefix: str, limit: int) -> list[str]:
        folder, slash, rest = prefix.rpartition("/")
        if {".", ".."} & set(folder.split("/")) or folder.startswith("/"):
            raise BadCredential(f"{prefix[:200]!r} is no beginning of a path below the KV engine.")
        try:
            found = self._get("LIST", f"{self._configuration.mount}/metadata/{_quoted(folder + slash)}")
        except SecretNotFound:
            return []
        keys = found.get("keys")
        names = [one for one in keys if isinstance(one, str)] if isinstance(keys, list) else []
        return [f"{folder}{slash}{one}" for one in names if one.startswith(rest)][:limit]

    def check(self) -> str:
        try:
            found = self._get("GET", "auth/token/lookup-self")
        except AccessDenied:
            raise CredentialRefused(
                "Vault refuses the token, or its policies do not allow auth/token/lookup-self.",
                "Give a token that has not expired; the policy `default` allows it to look itself up.",
            ) from None
        name, policies = str(found.get("display_name") or "a token"), found.get("policies")
        listed = ", ".join(map(str, policies)) if isinstance(policies, list) else ""
        return (f"{name}, with the policies {listed}" if listed else name)[:500]

    def close(self) -> None:
        """Keeps no connection."""

    def _make_token(self) -> tuple[str, float]:
        given = self._configuration
        if isinstance(given, Token):
            return given.token.get_secret_value(), math.inf
        if isinstance(given, AppRole):
            return self._login(
                given.auth_path, {"role_id": given.role_id, "secret_id": given.secret_id.get_secret_value()}
            )
        token = self._subject(given.audience or given.address)
        return self._login(given.auth_path, {"role": given.role, "jwt": token})

    def _login(self, path: str, document: dict[str, str]) -> tuple[str, float]:
        status, answer = self._send("POST", f"auth/{_quoted(path)}/login", document=document)
        auth = answer.get("auth")
        if status != OK or not isinstance(auth, dict):
            raise _of_handshake(status, answer.get("errors"), by_jwt="jwt" in document)
        life = auth.get("lease_duration")
        return str(auth.get("client_token", "")), float(life) if isinstance(life, int) and life > 0 else HOUR

    def _get(self, method: str, path: str) -> dict[str, Any]:
        return self._token.use(lambda token: self._data(method, path, token))

    def _data(self, method: str, path: str, token: str) -> dict[str, Any]:
        status, answer = self._send(method, path, token=token)
        data = answer.get("data")
        if status == OK and isinstance(data, dict):
            return data
        raise _of_answer(status)

    def _send(
        self, method: str, path: str, *, token: str = "", document: dict[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        headers = {"X-Vault-Request": "true"}
        if token:
            headers["X-Vault-Token"] = token
        if self._configuration.namespace:
            headers["X-Vault-Namespace"] = self._configuration.namespace
        content = json.dumps(document).encode() if document else None
        status, body = self._direct.send(method, f"/v1/{path}", headers, content)
        if is_overloaded(status) or status in STANDBY:
            raise unavailable(TITLE, f"is sealed, on standby or overloaded (status {status})")
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        return status, answer if isinstance(answer, dict) else {}


def _quoted(path: str) -> str:
    return quote(path, safe="/")


def _of_answer(status: int) -> SecretError:
    return first_meaning(ANSWERS, str(status)) or SecretError(
        f"The answer is not that of a Vault (status {status}).", "Check the address and `mount`."
    )


def _of_handshake(status: int, errors: object, *, by_jwt: bool) -> SecretError:
    """Returns why Vault refuses the login."""
    if status in REDIRECTS or status == OK:
        return _of_answer(status)
    if not by_jwt:
        return CredentialRefused(
            f"Vault refuses the AppRole (status {status}).",
            "Check role_id, secret_id and auth_path; a secret ID may have ended or been used up.",
        )
    return first_meaning(HANDSHAKES, f"{status} {errors}") or CredentialRefused(
        f"Vault refuses the token of the server (status {status}).",
        "oidc_discovery_url and bound_issuer of the JWT method must be the issuer that `windlass admin identity` "
        "prints.",
    )

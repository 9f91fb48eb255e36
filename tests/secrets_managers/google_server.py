"""Google Cloud: its token service, which verifies tokens of an OIDC issuer, and the REST API of Secret Manager.

Google's own client accepts it (test_google_server.py).
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from werkzeug.wrappers import Request, Response

from secrets_managers.serving import Faults, served
from secrets_managers.token_issuer import Invalid, RelyingParty, json_response
from windlass.secrets.providers.endpoints import Endpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PROJECT = "project-of-tests"
POOL = "projects/123456/locations/global/workloadIdentityPools/windlass"
PROVIDER = f"{POOL}/providers/windlass"
EMAIL = f"reader@{PROJECT}.iam.gserviceaccount.com"
KEY_ID = "key-1"
ACCESS, LIST = "secretmanager.versions.access", "secretmanager.secrets.list"
JWT = "urn:ietf:params:oauth:token-type:jwt"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


def _error(status: int, name: str, message: str, reason: str = "") -> Response:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}]
    error = {"code": status, "message": message, "status": name} | ({"details": details} if reason else {})
    return json_response({"error": error}, status)


def _oauth_error(code: str, description: str) -> Response:
    return json_response({"error": code, "error_description": description}, 400)


@dataclass
class Version:
    data: bytes
    state: str = "ENABLED"


class GoogleServer:
    name = "google"
    faults: Faults
    endpoints: Endpoints

    def __init__(self) -> None:
        self.versions: dict[str, list[Version]] = {}
        self.permissions = {ACCESS, LIST}
        self.api_enabled = True
        self._tokens: dict[str, str] = {}  # a token -> its principal
        self._subjects: set[str] = set()
        self._parties: dict[str, RelyingParty] = {}

    @cached_property
    def _key(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def trust(self, issuer: str, subject: str) -> None:
        self._parties = {issuer: RelyingParty(issuer)}  # a provider has one issuer
        self._subjects.add(subject)

    def configuration(self, method: str) -> dict[str, Any]:
        if method == "workload_identity":
            return {"project": PROJECT, "provider": PROVIDER}
        return {"service_account_json": json.dumps(self.key_file())}

    def key_file(self) -> dict[str, str]:
        """The token address in it must not be used by anybody."""
        pem = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": KEY_ID,
            "private_key": pem.decode(),
            "client_email": EMAIL,
            "token_uri": f"{self.endpoints.google_sts}/pasted-address",
        }

    def put(self, name: str, value: str) -> None:
        self.put_bytes(name, value.encode())

    def put_bytes(self, name: str, value: bytes) -> None:
        self.versions.setdefault(f"projects/{PROJECT}/secrets/{name}", []).append(Version(value))

    @contextmanager
    def forbidden(self) -> Iterator[None]:
        self.permissions.clear()
        try:
            yield
        finally:
            self.permissions |= {ACCESS, LIST}

    def end_tokens(self) -> None:
        self._tokens.clear()

    def unreachable(self, port: int) -> Endpoints:
        return Endpoints(google_secretmanager=f"http://127.0.0.1:{port}", google_sts=f"http://127.0.0.1:{port}")

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        request = Request(environ)
        answer = self._exchange(request) if request.path == "/v1/token" else self._api(request)
        return answer(environ, start)

    def _exchange(self, request: Request) -> Response:
        form = request.form
        if form.get("grant_type") != EXCHANGE or form.get("subject_token_type") != JWT or not form.get("scope"):
            return _oauth_error("invalid_request", "grant_type, subject_token_type or scope")
        if form.get("audience") != f"//iam.googleapis.com/{PROVIDER}":
            return _oauth_error(
                "invalid_target", 'The target service indicated by the "audience" parameters is invalid.'
            )
        claims: dict[str, Any] = {}
        problem = "The issuer in ID Token does not match the expected ones."
        for party in self._parties.values():
            try:
                claims = party.verify(form["subject_token"], f"//iam.googleapis.com/{PROVIDER}")
            except Invalid as error:
                problem = str(error)
        if not claims:
            return _oauth_error("invalid_grant", f"ID Token issued is not valid: {problem}")
        token = f"ya29.d.{secrets.token_urlsafe(24)}"
        self._tokens[token] = f"principal://iam.googleapis.com/{POOL}/subject/{claims['sub']}"
        kind = "urn:ietf:params:oauth:token-type:access_token"
        return json_response(
            {"access_token": token, "issued_token_type": kind, "token_type": "Bearer", "expires_in": 3600}
        )

    def _principal(self, request: Request) -> str:
        """Returns who calls, empty for nobody known."""
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token in self._tokens:
            return self._tokens[token]
        try:  # a token that a service account has signed, as a credential of its own
            options: Any = {"verify_aud": False, "require": ["exp", "iat"]}
            claims = jwt.decode(token, self._key.public_key(), algorithms=["RS256"], options=options)
        except jwt.PyJWTError:
            return ""
        scoped = claims.get("aud") == "https://secretmanager.googleapis.com/" or "cloud-platform" in claims.get(
            "scope", ""
        )
        fits = claims["iss"] == claims["sub"] == EMAIL and claims["exp"] > time.time() and scoped
        return f"serviceAccount:{EMAIL}" if fits else ""

    def _may(self, principal: str, permission: str) -> bool:
        known = {f"principal://iam.googleapis.com/{POOL}/subject/{one}" for one in self._subjects}
        return permission in self.permissions and principal in known | {f"serviceAccount:{EMAIL}"}

    def _api(self, request: Request) -> Response:
        principal = self._principal(request)
        if not principal:
            return _error(401, "UNAUTHENTICATED", "Invalid authentication credentials.", "ACCESS_TOKEN_INVALID")
        if not self.api_enabled:
            return _error(403, "PERMISSION_DENIED", "Secret Manager API has not been used.", "SERVICE_DISABLED")
        if found := re.fullmatch(r"/v1/(projects/[^/]+/secrets/[^/]+)/versions/latest:access", request.path):
            return self._access(found[1], principal)
        if found := re.fullmatch(r"/v1/(projects/[^/]+)/secrets", request.path):
            return self._list(found[1], principal, request)
        return _error(404, "NOT_FOUND", request.path)

    def _access(self, name: str, principal: str) -> Response:
        if not self._may(principal, ACCESS):
            return _error(403, "PERMISSION_DENIED", f"Permission '{ACCESS}' denied (or it may not exist).")
        versions = self.versions.get(name)
        if not versions:
            return _error(404, "NOT_FOUND", f"Secret [{name}] not found or has no versions.")
        enabled = [place for place, one in enumerate(versions, 1) if one.state == "ENABLED"]
        if not enabled:
            return _error(400, "FAILED_PRECONDITION", "Secret Version is in DISABLED state.")
        data = base64.b64encode(versions[enabled[-1] - 1].data).decode()
        return json_response({"name": f"{name}/versions/{enabled[-1]}", "payload": {"data": data}})

    def _list(self, project: str, principal: str, request: Request) -> Response:
        if not self._may(principal, LIST):
            return _error(403, "PERMISSION_DENIED", f"Permission '{LIST}' denied.")
        wanted = request.args.get("filter", "").removeprefix("name:")
        names = sorted(
            one for one in self.versions if one.startswith(f"{project}/") and wanted in one.rpartition("/")[2]
        )
        size, start = int(request.args.get("pageSize", 0)) or 25_000, int(request.args.get("pageToken") or 0)
        document: dict[str, Any] = {"secrets": [{"name": one} for one in names[start : start + size]]}
        if start + size < len(names):
            document["nextPageToken"] = str(start + size)
        return json_response(document)


@contextmanager
def google_server() -> Iterator[GoogleServer]:
    server = GoogleServer()
    server.faults = Faults(server, lambda: _error(429, "RESOURCE_EXHAUSTED", "Quota exceeded."))
    with served(server.faults) as address:
        server.endpoints = Endpoints(google_secretmanager=address, google_sts=address)
        yield server

"""Azure: Entra's token address, which verifies tokens of an OIDC issuer, and Key Vault, both over TLS.

Microsoft's clients accept both.
"""

from __future__ import annotations

import re
import secrets
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from werkzeug.wrappers import Request, Response

from secrets_managers.serving import Faults, certificates, served
from secrets_managers.token_issuer import Invalid, RelyingParty, json_response, unverified
from windlass.secrets.providers.endpoints import Endpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TENANT, CLIENT = "11111111-2222-4333-8444-555566667777", "99999999-8888-4777-8666-555544443333"
CLIENT_SECRET = "client~secret~of~tests"
AUDIENCE = "api://AzureADTokenExchange"
RESOURCE = "https://vault.azure.net"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
NAME = re.compile(r"[0-9a-zA-Z-]{1,127}")


def _entra_error(code: int, text: str, status: int = 401) -> Response:
    document = {"error": "invalid_client", "error_description": f"AADSTS{code}: {text}", "error_codes": [code]}
    return json_response(document, status)


def _error(status: int, code: str, message: str, inner: str = "") -> Response:
    error: dict[str, Any] = {"code": code, "message": message}
    return json_response({"error": error | ({"innererror": {"code": inner}} if inner else {})}, status)


@dataclass
class Held:
    name: str
    value: str
    enabled: bool = True


@dataclass
class AzureServer:
    name: str = "azure"
    address: str = ""
    ca: str = ""
    secrets: dict[str, Held] = field(default_factory=dict)
    may_read: bool = True
    tenant_of_vault: str = TENANT
    faults: Faults = field(init=False)
    endpoints: Endpoints = field(init=False)
    _tokens: set[str] = field(default_factory=set)
    _federated: set[tuple[str, str]] = field(default_factory=set)
    _parties: dict[str, RelyingParty] = field(default_factory=dict)

    def trust(self, issuer: str, subject: str) -> None:
        self._federated.add((issuer, subject))

    def configuration(self, method: str) -> dict[str, Any]:
        own = {"vault_url": "https://of-tests.vault.azure.net", "tenant_id": TENANT, "client_id": CLIENT}
        return own if method == "workload_identity" else {**own, "client_secret": CLIENT_SECRET}

    def put(self, name: str, value: str) -> None:
        assert NAME.fullmatch(name)
        self.secrets[name.lower()] = Held(name, value)

    @contextmanager
    def forbidden(self) -> Iterator[None]:
        self.may_read = False
        try:
            yield
        finally:
            self.may_read = True

    def end_tokens(self) -> None:
        self._tokens.clear()

    def unreachable(self, port: int) -> Endpoints:
        address = f"https://localhost:{port}"
        return Endpoints(azure_authority=address, azure_vault=address, azure_ca=self.ca)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        return self._answer(Request(environ))(environ, start)

    def _answer(self, request: Request) -> Response:
        parts = request.path.strip("/").split("/")
        if parts[1:] == ["v2.0", ".well-known", "openid-configuration"]:
            own = f"{self.address}/{parts[0]}"
            names = {
                "token_endpoint": "token",
                "authorization_endpoint": "authorize",
                "device_authorization_endpoint": "x",
            }
            found = {name: f"{own}/oauth2/v2.0/{path}" for name, path in names.items()}
            return json_response({"issuer": f"{own}/v2.0", **found})
        if parts[1:] == ["oauth2", "v2.0", "token"]:
            return self._token(parts[0], request.form)
        if parts[0] == "secrets":
            return self._vault(parts[1:], request)
        return json_response({"error": "not_found"}, 404)

    def _token(self, tenant: str, form: Any) -> Response:
        if tenant not in {TENANT, self.tenant_of_vault}:
            return _entra_error(90002, f"Tenant '{tenant}' not found.", 400)
        if form.get("client_id") != CLIENT:
            return _entra_error(700016, "Application not found in the directory.", 400)
        if (
            form.get("grant_type") != "client_credentials"
            or f"{RESOURCE}/.default" not in form.get("scope", "").split()
        ):
            return _entra_error(70011, "The scope is not valid.", 400)
        if problem := self._problem_of(form):
            return problem
        token = f"eyFAKE.{secrets.token_urlsafe(24)}"
        self._tokens.add(token)
        return json_response({"token_type": "Bearer", "expires_in": 3599, "access_token": token})

    def _problem_of(self, form: Any) -> Response | None:
        if "client_secret" in form:
            known = form["client_secret"] == CLIENT_SECRET
            return None if known else _entra_error(7000215, "Invalid client secret provided.")
        token = form.get("client_assertion", "") if form.get("client_assertion_type") == ASSERTION else ""
        claims = unverified(token)
        issuer = str(claims.get("iss"))
        if claims.get("aud") != AUDIENCE:
            return _entra_error(700212, "No matching federated identity record found for presented assertion audience.")
        if (issuer, claims.get("sub")) not in self._federated:
            return _entra_error(700213, "No matching federated identity record found for presented assertion subject.")
        try:
            self._parties.setdefault(issuer, RelyingParty(issuer)).verify(token, AUDIENCE)
        except Invalid as error:
            if "Expired" in str(error):
                return _entra_error(700024, "Client assertion is not within its valid time range.")
            return _entra_error(50013, f"Assertion failed signature validation. {error}")
        return None

    def _vault(self, parts: list[str], request: Request) -> Response:
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self._tokens:
            challenge = f'Bearer authorization="{self.address}/{self.tenant_of_vault}", resource="{RESOURCE}"'
            answer = _error(401, "Unauthorized", "AKV10000: Request is missing a Bearer or PoP token.")
            answer.headers["WWW-Authenticate"] = challenge
            return answer
        if not self.may_read:
            return _error(403, "Forbidden", "Caller is not authorized to perform action.", "ForbiddenByRbac")
        return self._get(parts[0]) if parts else self._list(request)

    def _list(self, request: Request) -> Response:
        names, size = sorted(self.secrets), int(request.args.get("maxresults", 25))
        start = int(request.args.get("$skiptoken", 0))
        query = f"api-version={request.args.get('api-version')}&$skiptoken={start + size}&maxresults={size}"
        following = f"{self.address}/secrets?{query}" if start + size < len(names) else None
        found = [self._described(self.secrets[one]) for one in names[start : start + size]]
        return json_response({"value": found, "nextLink": following})

    def _get(self, name: str) -> Response:
        if not NAME.fullmatch(name):
            return _error(400, "BadParameter", f"The request URI contains an invalid name: {name}")
        held = self.secrets.get(name.lower())
        if held is None:
            return _error(404, "SecretNotFound", f"A secret with (name/id) {name} was not found in this key vault.")
        if not held.enabled:
            return _error(403, "Forbidden", "Operation get is not allowed on a disabled secret.", "SecretDisabled")
        return json_response({"value": held.value, **self._described(held)})

    def _described(self, held: Held) -> dict[str, Any]:
        times = {"created": 1_700_000_000, "updated": 1_700_000_000}
        return {"id": f"{self.address}/secrets/{held.name}", "attributes": {"enabled": held.enabled, **times}}


@contextmanager
def azure_server() -> Iterator[AzureServer]:
    with TemporaryDirectory() as folder:
        ca, tls = certificates(Path(folder))
        server = AzureServer(ca=str(ca))
        server.faults = Faults(server, lambda: _error(429, "Throttled", "Too many requests."))
        with served(server.faults, tls) as server.address:
            server.endpoints = Endpoints(azure_authority=server.address, azure_vault=server.address, azure_ca=server.ca)
            yield server

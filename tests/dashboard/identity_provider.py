"""An OpenID Connect provider for tests. It checks the client as a strict one does, and can lie in its ID token."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from windlass.api.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

CLIENT, SECRET = "windlass-tests", "the secret of the client"
Claims = dict[str, Any]


@dataclass
class IdentityProvider:
    """`person` are the claims of whoever signs in; `change` makes an ID token wrong. `is_down` answers 500 to all."""

    person: Claims = field(default_factory=dict)
    change: Callable[[Claims], None] | None = None
    sign: Callable[[Claims], str] | None = None
    issuer_it_names: str | None = None
    declines: bool = False
    is_down: bool = False
    url: str = ""
    metadata: Claims = field(default_factory=dict)
    asked_for_tokens: int = 0
    _key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one", "use": "sig"}))
    _codes: dict[str, Claims] = field(default_factory=dict)

    async def start(self) -> HttpServer:
        routes = [
            Route("/.well-known/openid-configuration", self._discovery),
            Route("/authorize", self._authorize),
            Route("/token", self._token, methods=["POST"]),
            Route("/jwks", self._jwks),
        ]
        server = HttpServer(Starlette(routes=routes), "127.0.0.1", 0)
        await server.start()
        self.url = f"http://127.0.0.1:{server.port}"
        return server

    def signed(self, claims: Claims, algorithm: str = "RS256", key: RSAKey | ECKey | OctKey | None = None) -> str:
        return jwt.encode({"alg": algorithm, "kid": "one"}, claims, key or self._key, algorithms=[algorithm])

    def unsigned(self, claims: Claims) -> str:
        head, body = ('{"alg":"none","kid":"one"}', json.dumps(claims))
        return ".".join(base64.urlsafe_b64encode(one.encode()).decode().rstrip("=") for one in (head, body)) + "."

    async def _discovery(self, _: Request) -> Response:
        if self.is_down:
            return Response(status_code=500)
        found = {
            "issuer": self.issuer_it_names or self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
        }
        return JSONResponse({**found, **self.metadata})

    async def _authorize(self, request: Request) -> Response:
        query = request.query_params
        assert (query["client_id"], query["response_type"], query["code_challenge_method"]) == (CLIENT, "code", "S256")
        assert "openid" in query["scope"].split()
        assert query["nonce"]
        if self.declines:
            answer = {"error": "access_denied", "error_description": "<b>no</b>", "state": query["state"]}
            return RedirectResponse(f"{query['redirect_uri']}?{urlencode(answer)}")
        code = secrets.token_urlsafe()
        self._codes[code] = {**query, "person": dict(self.person)}
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}")

    async def _token(self, request: Request) -> Response:
        self.asked_for_tokens += 1
        form = await request.form()
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        begun = self._codes.pop(str(form.get("code")), None)  # a code is valid once
        verifier = hashlib.sha256(str(form.get("code_verifier")).encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).decode().rstrip("=")
        if request.headers.get("authorization") != f"Basic {basic}" or begun is None:
            return JSONResponse({"error": "invalid_client"}, 401)
        if begun["code_challenge"] != challenge or begun["redirect_uri"] != form["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 60, "nonce": begun["nonce"]}
        claims |= begun["person"]
        if self.change:
            self.change(claims)
        token = (self.sign or self.signed)(claims)
        return JSONResponse({"access_token": "unused", "token_type": "Bearer", "id_token": token})

    async def _jwks(self, _: Request) -> Response:
        return JSONResponse(KeySet([self._key]).as_dict(private=False))

"""An OIDC issuer, made with another library than the server's, and what a provider does with its tokens."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import jwt
from joserfc import jwt as joserfc_jwt
from joserfc.jwk import RSAKey
from jwt import PyJWKSet
from werkzeug.wrappers import Request, Response

from secrets_managers.serving import served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ALGORITHM = "RS256"
ORGANIZATION = "6b0a0e0c-1111-4222-8333-944455556666"
OTHER_ORGANIZATION = "00000000-0000-4000-8000-000000000000"


def subject_of(organization: str) -> str:
    return f"organization:{organization}"


def _new_key() -> RSAKey:
    key = RSAKey.generate_key(2048, private=True)
    return RSAKey.import_key(key.as_dict(private=True), {"kid": key.thumbprint(), "use": "sig", "alg": ALGORITHM})


@dataclass
class TokenIssuer:
    url: str = ""
    key: RSAKey = field(default_factory=_new_key)
    fetched: list[str] = field(default_factory=list)

    def rotate(self) -> None:
        """Replaces the key at once, without a time in which both are published."""
        self.key = _new_key()

    def token(self, audience: str, *, organization: str = ORGANIZATION, age: float = 0, forged: bool = False) -> str:
        """Signs a token that is valid for an hour since `age` seconds ago. A forged one names the key of the issuer,
        and another has signed it.
        """
        now = int(time.time() - age)
        claims = {
            "iss": self.url,
            "sub": subject_of(organization),
            "aud": audience,
            "iat": now,
            "nbf": now - 30,
            "exp": now + 3600,
            "jti": str(uuid.uuid4()),
            "organization_id": organization,
        }
        header = {"alg": ALGORITHM, "kid": self.key.kid, "typ": "JWT"}
        return joserfc_jwt.encode(header, claims, _new_key() if forged else self.key)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = Request(environ).path
        self.fetched.append(path)
        documents: dict[str, Any] = {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/oauth2/jwks",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": [ALGORITHM],
            },
            "/oauth2/jwks": {"keys": [self.key.as_dict(private=False)]},
        }
        found = documents.get(path)
        return json_response(found or {}, 200 if found else 404)(environ, start)


@contextmanager
def token_issuer() -> Iterator[TokenIssuer]:
    issuer = TokenIssuer()
    with served(issuer) as issuer.url:
        yield issuer


class Invalid(Exception):  # noqa: N818 - describes the token
    pass


class RelyingParty:
    """Verifies tokens as a provider does, by what the issuer publishes over HTTP."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._http = httpx.Client(timeout=60, trust_env=False)
        self._keys: PyJWKSet | None = None

    def verify(self, token: str, audience: str) -> dict[str, Any]:
        """Returns the claims. Raises Invalid."""
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") != ALGORITHM:
                raise Invalid(f"alg {header.get('alg')!r}")
            options: Any = {"require": ["iss", "sub", "aud", "exp", "iat"], "strict_aud": True}
            claims = jwt.decode(
                token,
                self._key(header["kid"]),
                algorithms=[ALGORITHM],
                audience=audience,
                issuer=self._issuer,
                leeway=60,
                options=options,
            )
        except (jwt.PyJWTError, KeyError) as error:
            raise Invalid(f"{type(error).__name__}: {error}") from error
        if claims["exp"] - claims["iat"] > 24 * 3600:
            raise Invalid("the token lives too long")
        return claims

    def _key(self, kid: str) -> Any:
        try:
            return (self._keys or self._fetched())[kid].key
        except KeyError:  # a key that was rotated since
            return self._fetched()[kid].key

    def _fetched(self) -> PyJWKSet:
        try:
            document = self._http.get(f"{self._issuer}/.well-known/openid-configuration").raise_for_status().json()
            if document["issuer"] != self._issuer or ALGORITHM not in document["id_token_signing_alg_values_supported"]:
                raise Invalid("the discovery document does not fit")
            keys = self._http.get(document["jwks_uri"]).raise_for_status().json()
        except (httpx.HTTPError, ValueError) as error:
            raise Invalid(f"Couldn't retrieve verification key from your identity provider: {error}") from error
        if any({"d", "p", "q"} & set(key) for key in keys["keys"]):
            raise Invalid("the issuer publishes a private key")
        self._keys = PyJWKSet.from_dict(keys)
        return self._keys


def unverified(token: str) -> dict[str, Any]:
    """Returns the claims of a token that is not verified yet, empty for no token."""
    try:
        return jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError:
        return {}


def json_response(document: dict[str, Any], status: int = 200, **headers: str) -> Response:
    return Response(json.dumps(document), status, headers, content_type="application/json")

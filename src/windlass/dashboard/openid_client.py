"""The client of an OpenID Connect provider: the authorization code flow with PKCE, by Authlib."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cryptography.fernet import Fernet, InvalidToken

from windlass.access.openid import SignInRefused
from windlass.secrets.key_ring import to_base64

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from windlass.access.openid import OpenId

VALID_SECONDS = 600
TIMEOUT = 10.0
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


class OpenIdClient:
    """The client of one provider. Its first use reads the provider's metadata."""

    def __init__(self, config: OpenId, key: bytes) -> None:
        self.config = config
        self._states = Fernet(to_base64(key) + "=")

    @property
    def host(self) -> str:
        return urlsplit(self.config.issuer).hostname or self.config.issuer

    @cached_property
    def _app(self) -> Any:
        from authlib.integrations.starlette_client import OAuth  # noqa: PLC0415 - most servers never use it

        config = self.config
        app: Any = OAuth().register(
            "openid",
            client_id=config.client_id,
            client_secret=config.client_secret.reveal(),
            server_metadata_url=f"{config.issuer}/.well-known/openid-configuration",
            client_kwargs={"scope": "openid email profile", "code_challenge_method": "S256", "timeout": TIMEOUT},
        )
        return app

    async def redirect(self, request: Request, back: str, following: str) -> tuple[Response, str]:
        """Returns the redirect to the provider, and the cookie to keep. `back` is the address to come back to."""
        request.scope["session"] = {}
        await self._metadata()
        response = await self._app.authorize_redirect(request, back)
        kept = {"session": request.scope["session"], "next": following}
        return response, self._states.encrypt(json.dumps(kept).encode()).decode()

    async def claims(self, request: Request, cookie: str | None) -> tuple[dict[str, Any], str]:
        """Returns the claims of the verified ID token, and the page that the person wanted. Raises SignInRefused."""
        try:
            kept = json.loads(self._states.decrypt((cookie or "").encode(), ttl=VALID_SECONDS))
        except (InvalidToken, ValueError):
            raise SignInRefused("The sign-in took too long, or began in another browser.", "Sign in again.") from None
        request.scope["session"] = kept["session"]
        issuer = await self._metadata()
        found = await self._app.authorize_access_token(request, claims_options=self._required(issuer))
        claims = found.get("userinfo")
        if not claims:
            raise SignInRefused("Your provider sent no ID token.", "Sign in again.")
        return dict(claims), str(kept["next"])

    def _required(self, issuer: str) -> dict[str, dict[str, Any]]:
        """Returns what the ID token must have, besides what Authlib requires of each: `sub`, `exp`, `iat`, the nonce,
        and `azp` with several audiences, which is then this client. Without `aud` here, a token for another client
        whose `azp` is this one would pass.
        """
        return {
            "iss": {"essential": True, "value": issuer},
            "aud": {"essential": True, "value": self.config.client_id},
            "nonce": {"essential": True},
        }

    async def _metadata(self) -> str:
        """Reads the provider's metadata, once, and checks what Authlib believes: the issuer and the algorithms.

        Returns the issuer as the provider writes it.
        """
        metadata = await self._app.load_server_metadata()
        if str(metadata.get("issuer", "")).rstrip("/") != self.config.issuer:
            self.__dict__.pop("_app", None)
            raise ValueError("the provider names another issuer than WINDLASS_SIGN_IN_ISSUER")
        named = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
        metadata["id_token_signing_alg_values_supported"] = [one for one in named if one in ALGORITHMS]
        return str(metadata["issuer"])

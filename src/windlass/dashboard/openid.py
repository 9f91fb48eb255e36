"""Signing in with OpenID Connect: the authorization code flow with PKCE, by Authlib."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cryptography.fernet import Fernet, InvalidToken
from starlette.exceptions import HTTPException

from windlass import log
from windlass.access.authentication import TooManyRequests
from windlass.access.sessions import SignInRefused
from windlass.dashboard.routes import Routes
from windlass.dashboard.sign_in import begin, form, refused
from windlass.secrets.key_ring import to_base64

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from windlass.access.openid import OpenId
    from windlass.dashboard.routes import Visit

ROUTES = Routes()
STATE = "windlass_openid"
"""The cookie that keeps state, nonce and code verifier while the person is at the provider."""
VALID_SECONDS = 600
TIMEOUT = 10.0
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
DECLINED = "access_denied"

logger = log.logger(__name__)


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


@ROUTES.get("/sign-in/openid", role=None)
async def to_provider(visit: Visit) -> Response:
    client = _client(visit)
    try:
        response, state = await client.redirect(visit.request, _back(visit), visit.query.get("next", ""))
    except Exception as error:  # noqa: BLE001 - every failure of the provider becomes one page
        return await _failed(visit, client, error)
    visit.set_cookie(response, STATE, state, seconds=VALID_SECONDS)
    return response


@ROUTES.get("/sign-in/openid/callback", role=None)
async def from_provider(visit: Visit) -> Response:
    client, sessions = _client(visit), visit.dashboard.sessions
    try:
        # Each failure counts for the address: an answer that was made up costs requests to the provider.
        with sessions.failures.attempt(visit.client.source, Exception):
            claims, following = await client.claims(visit.request, visit.request.cookies.get(STATE))
            identity = client.config.identity(claims)
            cookie = await sessions.by_identity(identity, client.config.roles, visit.client)
    except (SignInRefused, TooManyRequests) as error:
        response = await refused(visit, error)
    except Exception as error:  # noqa: BLE001 - every failure of the provider becomes one page
        response = await _failed(visit, client, error)
    else:
        response = await begin(visit, cookie, following)
    response.delete_cookie(STATE, path=visit.dashboard.cookie_path)
    return response


def _client(visit: Visit) -> OpenIdClient:
    if visit.dashboard.openid is None:
        raise HTTPException(404)
    return visit.dashboard.openid


def _back(visit: Visit) -> str:
    return f"{visit.dashboard.server_url}/ui/sign-in/openid/callback"


async def _failed(visit: Visit, client: OpenIdClient, error: Exception) -> Response:
    if getattr(error, "error", None) == DECLINED:
        declined = SignInRefused(f"The sign-in was declined at {client.host}.", "Sign in again, or ask your provider.")
        return await refused(visit, declined)
    logger.event("sign_in.provider_failed", issuer=client.config.issuer, error=type(error).__name__)
    failed = SignInRefused(
        f"The sign-in with {client.host} failed.",
        "Try again. If it fails again, look into the server's log for sign_in.provider_failed "
        "(docs/how-to/sign-in.md).",
    )
    return await form(visit, failed, 502)

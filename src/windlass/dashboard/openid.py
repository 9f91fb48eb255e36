"""The pages that sign a person in with OpenID Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from windlass import log
from windlass.access.authentication import TooManyRequests
from windlass.access.openid import SignInRefused
from windlass.dashboard.openid_client import VALID_SECONDS
from windlass.dashboard.routes import Routes
from windlass.dashboard.sign_in import begin, form, refused

if TYPE_CHECKING:
    from starlette.responses import Response

    from windlass.dashboard.openid_client import OpenIdClient
    from windlass.dashboard.routes import Visit

ROUTES = Routes()
STATE = "windlass_openid"
"""The cookie that keeps state, nonce and code verifier while the person is at the provider."""
DECLINED = "access_denied"

logger = log.logger(__name__)


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

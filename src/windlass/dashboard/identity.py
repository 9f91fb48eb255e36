"""Workload identity: who the server is to cloud providers and Vault, and the keys that sign its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.api.control_api.identity import identity_answer
from windlass.dashboard.routes import Routes
from windlass.deployments.identity import KeysAreFixed
from windlass.rights import Role
from windlass.secrets.provider import NoIssuer
from windlass.store.signing_keys import KeyWaits

if TYPE_CHECKING:
    from starlette.responses import Response

    from windlass.dashboard.routes import Visit
    from windlass.errors import WindlassError

ROUTES = Routes()
CONFLICT, UNAVAILABLE = 409, 503
NOTICES = {
    "later": "The new key is published. It signs in 24 hours, when all providers know it.",
    "now": "The new key signs from now on. Providers that cache the keys may refuse tokens for some minutes.",
    "compromised": "The new key signs from now on, and all other keys are removed.",
}


@ROUTES.get("/identity", Role.OWNER)
async def show(visit: Visit) -> Response:
    return await _page(visit)


@ROUTES.post("/identity/rotate", Role.OWNER)
async def rotate(visit: Visit) -> Response:
    when = visit.field("when", "later")
    try:
        await visit.dashboard.control.identity.rotate(visit.actor, now=when == "now", withdraw=when == "compromised")
    except (KeysAreFixed, KeyWaits) as error:
        return await _page(visit, error, CONFLICT)
    return visit.redirect("/ui/identity", notice=NOTICES.get(when, NOTICES["later"]))


async def _page(visit: Visit, error: WindlassError | None = None, status: int = 200) -> Response:
    control = visit.dashboard.control
    try:
        await control.identity.prepare()
        found = identity_answer(control)
    except NoIssuer as missing:
        return visit.page("identity.html", UNAVAILABLE, identity=None, error=missing)
    wanted = visit.query.get("provider", "")
    chosen = wanted if wanted in found.providers else next(iter(found.providers))
    return visit.page("identity.html", status, identity=found, chosen=chosen, error=error)

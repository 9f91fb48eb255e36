"""Endpoints about the person who asks."""

from fastapi import APIRouter

from windlass.api.control_api.answers import MeAnswer, OwnToken
from windlass.api.control_api.callers import ControlRoute, Viewer

router = APIRouter(route_class=ControlRoute, tags=["people"])


@router.get("/me")
async def me(caller: Viewer) -> MeAnswer:
    """Returns the person and the token of this request."""
    token = caller.token
    own = OwnToken(id=token.id, name=token.name, expires_at=token.expires_at)
    return MeAnswer(user=caller.name, role=caller.role, token=own)

"""The list of crews."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from windlass.dashboard.routes import Routes
from windlass.kickoffs.roles import Role
from windlass.store.overview import DeploymentFilter, DeploymentState

if TYPE_CHECKING:
    from starlette.responses import Response

    from windlass.dashboard.routes import Visit

ROUTES = Routes()
PAGE = 50
LONGEST_SEARCH = 100


@ROUTES.get("/", Role.VIEWER)
async def show(visit: Visit) -> Response:
    search = visit.query.get("search", "").strip()[:LONGEST_SEARCH].replace("\0", "")
    state = next((one for one in get_args(DeploymentState) if one == visit.query.get("state")), None)
    wanted = DeploymentFilter(search=search or None, state=state, after=visit.query.get("after"))
    rows = await visit.dashboard.control.management.deployments(wanted, limit=PAGE)
    following = rows[-1].slug if len(rows) == PAGE else None
    return visit.page("crews.html", crews=rows, search=search, state=state, following=following)

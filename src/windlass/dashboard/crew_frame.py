"""What all pages of a crew share: its header, its tabs, and pause and resume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windlass.dashboard.routes import Routes
from windlass.rights import Role

if TYPE_CHECKING:
    from starlette.responses import Response

    from windlass.dashboard.routes import Visit
    from windlass.store.overview import DeploymentRow

ROUTES = Routes()


async def crew_of(visit: Visit) -> DeploymentRow:
    """Returns the deployment that the path names. Raises NoSuchDeployment."""
    return await visit.dashboard.control.management.show(visit.path["slug"])


async def crew_page(visit: Visit, template: str, tab: str, status: int = 200, **context: Any) -> Response:
    """Returns a page of a crew. `template` extends crew.html, and `tab` is the name of its tab."""
    crew = context.pop("crew", None) or await crew_of(visit)
    return visit.page(template, status, crew=crew, tab=tab, **context)


@ROUTES.post("/crews/{slug}/pause", Role.DEVELOPER)
async def pause(visit: Visit) -> Response:
    slug = visit.path["slug"]
    await visit.dashboard.control.management.pause(slug, visit.actor)
    return visit.redirect(f"/ui/crews/{slug}", notice="The crew is paused. New kickoffs are accepted, and wait.")


@ROUTES.post("/crews/{slug}/resume", Role.DEVELOPER)
async def resume(visit: Visit) -> Response:
    slug = visit.path["slug"]
    await visit.dashboard.control.management.resume(slug, visit.actor)
    return visit.redirect(f"/ui/crews/{slug}", notice="The crew is resumed. Waiting kickoffs start.")

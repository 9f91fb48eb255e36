"""Shows how to call a crew, and whether it is well: addresses, tokens, examples, inputs, health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from windlass.access.tokens import OF_CREWS
from windlass.api.crew_api.examples import example_inputs
from windlass.dashboard.call_examples import PROFILES, examples
from windlass.dashboard.crew_frame import crew_page
from windlass.dashboard.input_form import described_inputs
from windlass.dashboard.routes import HEADERS, Routes
from windlass.rights import Role
from windlass.secrets.secret import TokenKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from windlass.dashboard.routes import Visit
    from windlass.secrets.secret import Secret

ROUTES = Routes()
NAMES = {TokenKind.ORGANIZATION: "Bearer Token", TokenKind.USER: "User Bearer Token"}
NOT_STORED = {"Cache-Control": "no-store"}
ERROR = 404


def base_url_of(visit: Visit, slug: str) -> str:
    return f"{visit.dashboard.server_url}/crews/{slug}"


@ROUTES.get("/crews/{slug}", Role.VIEWER)
async def show(visit: Visit) -> Response:
    return await _page(visit, {})


@ROUTES.post("/crews/{slug}/tokens/{kind}/show", Role.DEVELOPER, back="/ui/crews/{slug}")
async def show_token(visit: Visit) -> Response:
    """Returns the token, as JSON for a script. A form without one gets the page with the token in it."""
    kind = _kind(visit)
    token = await visit.dashboard.control.management.show_token(visit.path["slug"], kind, visit.actor)
    if visit.request.headers.get("accept") == "application/json":
        return JSONResponse({"token": token.reveal()}, headers={**HEADERS, **NOT_STORED})
    page = await _page(visit, {kind: token})
    page.headers.update(NOT_STORED)
    return page


@ROUTES.post("/crews/{slug}/tokens/{kind}/rotate", Role.DEVELOPER)
async def rotate_token(visit: Visit) -> Response:
    slug, kind = visit.path["slug"], _kind(visit)
    await visit.dashboard.control.management.rotate_token(slug, kind, visit.actor)
    notice = f"The {NAMES[kind]} is rotated. The old one is refused from now on: give the new one to your programs."
    return visit.redirect(f"/ui/crews/{slug}", notice=notice)


@ROUTES.post("/crews/{slug}/profile", Role.DEVELOPER)
async def set_profile(visit: Visit) -> Response:
    slug, profile = visit.path["slug"], visit.field("profile")
    if profile not in PROFILES:
        raise HTTPException(ERROR)
    await visit.dashboard.control.management.change_settings(slug, {"profile": profile}, visit.actor, visit.person.role)
    notice = f"Answers have the profile {profile} from now on, except for tokens with a profile of their own."
    return visit.redirect(f"/ui/crews/{slug}", notice=notice)


def _kind(visit: Visit) -> TokenKind:
    given = visit.path["kind"]
    if given not in OF_CREWS:
        raise HTTPException(ERROR)
    return TokenKind(given)


async def _page(visit: Visit, revealed: Mapping[TokenKind, Secret]) -> Response:
    control, slug = visit.dashboard.control, visit.path["slug"]
    row = await control.management.show(slug)
    crew = await visit.dashboard.crew_api.crews.get(slug)
    failed = row.build is not None and row.build_state == "failed"
    facts: dict[str, Any] = {"called": None, "inputs": [], "warnings": []}
    if crew is not None:
        schema = crew.manifest.inputs_schema
        facts = {
            "called": examples(base_url_of(visit, slug), slug, example_inputs(schema), crew.profile),
            "inputs": described_inputs(schema),
            "warnings": await control.management.warnings(slug),
        }
    return await crew_page(
        visit,
        "crew_status.html",
        "Status",
        crew=row,
        base_url=base_url_of(visit, slug),
        profile=crew.profile if crew else None,
        profiles=PROFILES,
        tokens=[(NAMES[one.kind], one, revealed.get(one.kind)) for one in await control.management.masked_tokens(slug)],
        failed_build=await control.deploys.show_build(row.build) if failed else None,
        workers=await control.overview.worker_totals(),
        durations=await control.statistics.durations(row.id),
        **facts,
    )

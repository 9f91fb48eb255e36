"""Endpoints of deployments: lists, pause and resume, tokens."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path
from fastapi import Query as InQuery
from pydantic import Field

from windlass.api.control_api.answers import (
    BuildSummary,
    DeploymentAnswer,
    DeploymentDetails,
    DeploymentWarning,
    Page,
    Query,
    ShownTokensAnswer,
    Text,
    answer_of,
)
from windlass.api.control_api.callers import ControlRoute, Developer, Viewer
from windlass.api.control_api.dependencies import Control, id_cursor
from windlass.deployments.members import EVERYBODY, MEMBERS
from windlass.store.overview import DeploymentFilter, DeploymentRow

router = APIRouter(route_class=ControlRoute, tags=["deployments"])
Slug = Annotated[str, Path(pattern=r"^[^\x00]*$", description="The name of the deployment in URLs.")]


class DeploymentsQuery(Query):
    state: Literal["building", "online", "paused", "failed"] | None = Field(
        None, description="Only deployments in this state."
    )
    search: Text | None = Field(None, description="Only deployments whose slug contains this text.")
    order: Literal["slug", "-slug", "created_at", "-created_at"] = Field(
        "slug", description="The order of the list. `-` is the reverse order."
    )


@router.get("/deployments")
async def list_deployments(
    caller: Viewer, control: Control, query: Annotated[DeploymentsQuery, InQuery()]
) -> Page[DeploymentAnswer]:
    """Lists the deployments that the caller sees, with the load of their queues."""
    by_slug = query.order in {"slug", "-slug"}
    if not by_slug:
        id_cursor(query.cursor)
    sees = caller.actor.sees
    wanted = DeploymentFilter(search=query.search, state=query.state, order=query.order, after=query.cursor, sees=sees)
    rows = await control.management.deployments(wanted, limit=query.limit)
    following = (rows[-1].slug if by_slug else str(rows[-1].id)) if len(rows) == query.limit else None
    return Page(items=[deployment_answer(control, row) for row in rows], next_cursor=following)


@router.get("/deployments/{slug}")
async def show_deployment(_: Viewer, control: Control, slug: Slug) -> DeploymentDetails:
    """Returns a deployment, with the load of its queue and its warnings."""
    found = deployment_answer(control, await control.management.show(slug))
    warnings = [
        DeploymentWarning(code=one.code, message=one.message, kickoff_id=one.kickoff, kickoffs=one.kickoffs)
        for one in await control.management.warnings(slug)
    ]
    return DeploymentDetails(**found.model_dump(), warnings=warnings)


@router.post("/deployments/{slug}/pause")
async def pause_deployment(caller: Developer, control: Control, slug: Slug) -> DeploymentAnswer:
    """Pauses a deployment: its new kickoffs are accepted and wait. Kickoffs that already run are not affected."""
    return deployment_answer(control, await control.management.pause(slug, caller.actor))


@router.post("/deployments/{slug}/resume")
async def resume_deployment(caller: Developer, control: Control, slug: Slug) -> DeploymentAnswer:
    """Resumes a paused deployment: its waiting kickoffs can start."""
    return deployment_answer(control, await control.management.resume(slug, caller.actor))


@router.get("/deployments/{slug}/tokens")
async def show_tokens(caller: Developer, control: Control, slug: Slug) -> ShownTokensAnswer:
    """Returns the two shown tokens of a crew. Creates one that was revoked. The audit log has who saw them."""
    shown = await control.management.tokens(slug, caller.actor)
    return ShownTokensAnswer(
        organization_token=shown.organization.reveal(), user_token=shown.user.reveal(), user=shown.user_name
    )


def deployment_answer(control: Control, row: DeploymentRow) -> DeploymentAnswer:
    return answer_of(
        DeploymentAnswer,
        row,
        base_url=control.base_url(row.slug),
        visible_to=MEMBERS if row.members_only else EVERYBODY,
        latest_build=BuildSummary(id=row.build, state=row.build_state) if row.build and row.build_state else None,
    )

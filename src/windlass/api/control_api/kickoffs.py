"""Endpoints over the kickoffs of all crews, and the workers."""

from typing import Annotated, Literal

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field

from windlass.api.control_api.answers import KickoffItem, Page, Query, Text, WorkerItem, answer_of
from windlass.api.control_api.callers import ControlRoute, Viewer
from windlass.api.control_api.dependencies import Control, id_cursor
from windlass.api.crew_api.schemas import Time
from windlass.api.errors import Problem
from windlass.kickoffs.ids import parse_id
from windlass.kickoffs.states import State
from windlass.store.kickoff_list import KickoffFilter, KickoffRow

router = APIRouter(route_class=ControlRoute, tags=["kickoffs"])
WireState = Literal["PENDING", "STARTED", "PENDING_HUMAN_INPUT", "SUCCESS", "FAILED"]


class KickoffsQuery(Query):
    deployment: Text | None = Field(None, description="Only kickoffs of this deployment, by its slug.")
    state: WireState | None = Field(
        None, description="Only kickoffs in this state. `FAILED` includes cancelled and timed-out kickoffs."
    )
    user: Text | None = Field(None, description="Only kickoffs that this user's user tokens started.")
    since: Time | None = Field(None, description="RFC 3339. Only kickoffs that were created at or after this time.")
    until: Time | None = Field(None, description="RFC 3339. Only kickoffs that were created before this time.")


@router.get("/kickoffs")
async def list_kickoffs(
    caller: Viewer, control: Control, query: Annotated[KickoffsQuery, InQuery()]
) -> Page[KickoffItem]:
    """Lists the kickoffs of all crews that the caller sees, newest first.

    A page may have fewer items than the limit although more follow: `next_cursor` decides.
    """
    states = None if query.state is None else [one for one in State if one.state_on_the_wire == query.state]
    wanted = KickoffFilter(
        slug=query.deployment,
        states=states,
        user=query.user,
        since=query.since,
        until=query.until,
        before=id_cursor(query.cursor),
        sees=caller.actor.sees,
    )
    page = await control.overview.executions.listed(wanted, limit=query.limit)
    return Page(items=[_item(row) for row in page.rows], next_cursor=str(page.next) if page.next else None)


@router.get("/kickoffs/{kickoff_id}")
async def show_kickoff(_: Viewer, control: Control, kickoff_id: str) -> KickoffItem:
    """Returns a kickoff of any crew, with the slug of its deployment."""
    found = parse_id(kickoff_id)
    row = await control.overview.executions.find(found) if found else None
    if row is None:
        raise Problem(404, "There is no kickoff with this id. `windlass kickoffs` and GET /kickoffs list the kickoffs.")
    return _item(row)


@router.get("/workers")
async def list_workers(_: Viewer, control: Control, query: Annotated[Query, InQuery()]) -> Page[WorkerItem]:
    """Lists the workers in the order of their start. A worker that is silent for an hour is removed from the list."""
    rows = await control.overview.workers(after=id_cursor(query.cursor), limit=query.limit)
    items = [WorkerItem.model_validate(row, from_attributes=True) for row in rows]
    return Page(items=items, next_cursor=str(rows[-1].id) if len(rows) == query.limit else None)


def _item(row: KickoffRow) -> KickoffItem:
    return answer_of(KickoffItem, row, kickoff_id=row.id, deployment=row.slug, state=row.state.state_on_the_wire)

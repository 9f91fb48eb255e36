"""Endpoints of the members of a deployment."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from windlass.api.control_api.answers import Body, Text
from windlass.api.control_api.callers import ControlRoute, Developer, Viewer
from windlass.api.control_api.dependencies import Control
from windlass.api.control_api.deployments import Slug
from windlass.deployments.members import Membership

router = APIRouter(route_class=ControlRoute, tags=["members"])
UserName = Annotated[Text, Path(description="The name of the user.")]
VisibleTo = Annotated[
    Literal["everybody", "members"],
    Field(description="`members`: only its members and the owners of the server see the deployment."),
]


class MemberItem(BaseModel):
    user: str
    owner: bool = Field(
        description="Whether the user changes the members, and chooses the credentials of variables, as the owners of "
        "the server do. A user with the role `viewer` reads only."
    )
    added_at: datetime


class MembersAnswer(BaseModel):
    """Who sees a deployment, and its members: first its owners, in the order of their names."""

    visible_to: VisibleTo
    items: list[MemberItem]
    next_cursor: None = None


class VisibilityBody(Body):
    visible_to: VisibleTo


class MemberBody(Body):
    owner: bool = Field(False, description="Make the user an owner of the deployment.")


@router.get("/deployments/{slug}/members")
async def list_members(_: Viewer, control: Control, slug: Slug) -> MembersAnswer:
    """Returns who sees a deployment, and its members."""
    return _answer(await control.members.of(slug))


@router.patch("/deployments/{slug}/members")
async def change_visibility(caller: Developer, control: Control, slug: Slug, body: VisibilityBody) -> MembersAnswer:
    """Sets who sees a deployment. For its owners and those of the server: 403 for others."""
    await control.members.show_to(slug, body.visible_to, caller.actor)
    return _answer(await control.members.of(slug))


@router.put("/deployments/{slug}/members/{name}")
async def set_member(
    caller: Developer, control: Control, slug: Slug, name: UserName, body: MemberBody
) -> MembersAnswer:
    """Makes a user a member of a deployment or an owner. For its owners and those of the server: 403 for others.

    All servers know it when the answer is sent.
    """
    await control.members.put(slug, name, caller.actor, is_owner=body.owner)
    return _answer(await control.members.of(slug))


@router.delete("/deployments/{slug}/members/{name}", status_code=204)
async def remove_member(caller: Viewer, control: Control, slug: Slug, name: UserName) -> None:
    """Ends a membership. For the owners of the deployment and of the server, and for members to end their own."""
    await control.members.remove(slug, name, caller.actor)


def _answer(found: Membership) -> MembersAnswer:
    items = [MemberItem(user=one.user, owner=one.is_owner, added_at=one.added_at) for one in found.members]
    return MembersAnswer(visible_to=found.visible_to, items=items)

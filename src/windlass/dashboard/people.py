"""Users: list, add, roles, sign-in links, disable, remove."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from pydantic import ValidationError

from windlass.access.sessions import LINK_VALID
from windlass.access.tokens import LastOwner, UserCanNot, UserExists
from windlass.api.control_api.people import NewUser, end_user, token_item
from windlass.dashboard.routes import Routes, one_line
from windlass.errors import WindlassError
from windlass.lifecycle.deletion import KickoffsStillOpen
from windlass.rights import Role

if TYPE_CHECKING:
    from starlette.responses import Response

    from windlass.dashboard.routes import Visit
    from windlass.secrets.secret import Secret

ROUTES = Routes()
BAD, CONFLICT = 400, 409
PAGE = 100
MOST_TOKENS = 100
ROLES = (
    ("viewer", "Viewer", "Sees crews, executions and settings."),
    ("developer", "Developer", "Deploys and changes crews too, with their variables and tokens."),
    ("owner", "Owner", "Manages users, tokens and credentials too, and reads the audit log."),
    ("", "No role", "No access to the dashboard. For clients with user tokens of crews."),
)


class BadUserName(WindlassError):  # noqa: N818 - describes the name
    pass


@ROUTES.get("/people", Role.OWNER)
async def show(visit: Visit) -> Response:
    return await _list(visit)


@ROUTES.post("/people", Role.OWNER)
async def add(visit: Visit) -> Response:
    body = _new_user(visit)
    if body is None:
        error = BadUserName("This is no name of a user.", "Give 1 to 100 characters that can be printed.")
        return await _list(visit, error, BAD)
    try:
        await visit.dashboard.control.tokens.add_user(body.name, body.role, by=visit.actor)
    except UserExists as exists:
        return await _list(visit, exists, CONFLICT)
    return visit.redirect(_path(body.name), notice=f"{body.name} is added.")


@ROUTES.get("/people/user", Role.OWNER)
async def show_one(visit: Visit) -> Response:
    return await _page(visit, one_line(visit.query.get("name")))


@ROUTES.post("/people/role", Role.OWNER)
async def set_role(visit: Visit) -> Response:
    name, role = _name(visit), _role(visit)
    try:
        await visit.dashboard.control.tokens.set_role(name, role, by=visit.actor)
    except LastOwner as error:
        return await _page(visit, name, error, CONFLICT)
    if name == visit.person.name and role is not Role.OWNER:
        return visit.redirect("/ui/", notice="Your role is changed.")
    notice = f"{name} has the role {role} now." if role else f"{name} has no role any more."
    return visit.redirect(_path(name), notice=notice)


@ROUTES.post("/people/disable", Role.OWNER)
async def disable(visit: Visit) -> Response:
    name = _name(visit)
    try:
        await visit.dashboard.control.tokens.disable_user(name, by=visit.actor)
    except LastOwner as error:
        return await _page(visit, name, error, CONFLICT)
    return visit.redirect(_path(name), notice=f"{name} is disabled. Kickoffs that {name} started continue.")


@ROUTES.post("/people/enable", Role.OWNER)
async def enable(visit: Visit) -> Response:
    name = _name(visit)
    await visit.dashboard.control.tokens.enable_user(name, by=visit.actor)
    return visit.redirect(_path(name), notice=f"{name} is enabled.")


@ROUTES.post("/people/remove", Role.OWNER)
async def remove(visit: Visit) -> Response:
    name = _name(visit)
    try:
        await end_user(visit.dashboard.control, name, visit.actor, stop=visit.field("stop") == "on")
    except LastOwner as error:
        return await _page(visit, name, error, CONFLICT)
    except KickoffsStillOpen as error:
        refused = WindlassError(error.message, "Wait for them, or check the box that stops them.")
        return await _page(visit, name, refused, CONFLICT)
    return visit.redirect("/ui/people", notice=f"{name} is disabled. The kickoffs and tokens are being deleted.")


@ROUTES.post("/people/link", Role.OWNER)
async def make_link(visit: Visit) -> Response:
    """Returns the page with the link: it is in no other answer."""
    name = _name(visit)
    try:
        code = await visit.dashboard.sessions.new_link(name, by=visit.actor)
    except UserCanNot as error:
        return await _page(visit, name, error, CONFLICT)
    return await _page(visit, name, link=code)


async def _list(visit: Visit, error: WindlassError | None = None, status: int = 200) -> Response:
    users = await visit.dashboard.control.tokens.users(after=visit.query.get("after"), limit=PAGE)
    following = users[-1].name if len(users) == PAGE else None
    fields = {"name": visit.field("name"), "role": visit.field("role", "viewer")}
    context = {"users": users, "roles": ROLES, "error": error, "following": following}
    return visit.page("people.html", status, **context, **fields)


async def _page(
    visit: Visit, name: str, error: WindlassError | None = None, status: int = 200, link: Secret | None = None
) -> Response:
    control = visit.dashboard.control
    user = await control.tokens.user(name)
    rows = await control.tokens.newest(user=user.id, before=None, limit=MOST_TOKENS)
    address = f"{visit.dashboard.server_url}/ui/sign-in?code={link.reveal()}" if link else None
    return visit.page(
        "person.html",
        status,
        user=user,
        roles=ROLES,
        tokens=[token_item(row) for row in rows],
        open_kickoffs=await control.deletions.store.open_kickoffs(user.id),
        link=address,
        minutes=int(LINK_VALID.total_seconds() / 60),
        error=error,
    )


def _new_user(visit: Visit) -> NewUser | None:
    """Returns the user of the form, None for a name that no user can have."""
    with suppress(ValidationError):
        return NewUser(name=one_line(visit.field("name")), role=_role(visit))
    return None


def _name(visit: Visit) -> str:
    return one_line(visit.field("user"))


def _role(visit: Visit) -> Role | None:
    given = visit.field("role")
    return Role(given) if given in set(Role) else None


def _path(name: str) -> str:
    return f"/ui/people/user?name={quote(name, safe='')}"

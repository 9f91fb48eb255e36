"""API tokens: those of the person and, for owners, all of them; create, revoke."""

# See docs/decisions/dashboard.md#a-token-is-shown-only-on-request

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pydantic import ValidationError

from windlass.access.tokens import NoSuchUser, TokenTooLong, TooManyTokens, UserCanNot
from windlass.api.control_api.dependencies import id_cursor
from windlass.api.control_api.people import NewToken, end_token, make_personal_token, token_item
from windlass.dashboard.routes import Routes, chosen, one_line
from windlass.errors import WindlassError
from windlass.rights import SCOPES_OF_KIND, Role, Scope
from windlass.secrets.secret import TokenKind
from windlass.store.managing import NoSuchDeployment
from windlass.store.overview import DeploymentFilter

if TYPE_CHECKING:
    from starlette.responses import Response

    from windlass.dashboard.routes import Visit

ROUTES = Routes()
BAD = 400
PAGE = 100
MOST_NAMED = 200
"""Crews and users that the form proposes."""
EXPIRIES = (("30", "30 days"), ("90", "90 days"), ("365", "1 year"), ("", "Never"))
SCOPES = (
    (Scope.READ, "read", "Inputs, statuses, lists, events and files."),
    (Scope.RUN, "run", "Start and stop kickoffs."),
    (Scope.ADMIN, "admin", "Delete kickoffs. Not for user tokens."),
)
REFUSED = (NoSuchUser, UserCanNot, TooManyTokens, TokenTooLong, NoSuchDeployment)


class BadToken(WindlassError):  # noqa: N818 - describes the token
    """Reports that the form describes no token that can be made."""


@ROUTES.get("/tokens", Role.VIEWER)
async def show(visit: Visit) -> Response:
    everyone = visit.may(Role.OWNER) and visit.query.get("all") == "1"
    before = id_cursor(visit.query.get("before"))
    user = None if everyone else visit.person.user_id
    rows = await visit.dashboard.control.tokens.newest(user=user, before=before, limit=PAGE)
    following = rows[-1]["id"] if len(rows) == PAGE else None
    items = [token_item(row) for row in rows]
    return visit.page("tokens.html", tokens=items, everyone=everyone, following=following)


@ROUTES.get("/tokens/personal", Role.VIEWER)
async def show_personal(visit: Visit) -> Response:
    return await _personal_page(visit)


@ROUTES.post("/tokens/personal", Role.VIEWER)
async def create_personal(visit: Visit) -> Response:
    """Returns the page with the token: it is in no other answer."""
    days = visit.field("days")
    user = one_line(visit.field("user")) or None
    try:
        expires = float(days) if days else None
        body = NewToken(name=one_line(visit.field("name")), expires_in_days=expires, user=user)
    except (ValidationError, ValueError):
        error = BadToken("The token needs a name of 1 to 100 characters, and an expiry of the list.")
        return await _personal_page(visit, error)
    try:
        made = await make_personal_token(visit.dashboard.control, body, visit.person.role, visit.actor)
    except REFUSED as error:
        return await _personal_page(visit, error)
    about = f"It is a personal token of {made.user}, with the rights of the user's role."
    return visit.page("token_made.html", token=made.token, about=about, expires_at=made.expires_at, base_url=None)


@ROUTES.get("/tokens/crew", Role.OWNER)
async def show_of_crew(visit: Visit) -> Response:
    return await _crew_page(visit)


@ROUTES.post("/tokens/crew", Role.OWNER)
async def create_of_crew(visit: Visit) -> Response:
    """Returns the page with the token: it is in no other answer."""
    slug, name, days = one_line(visit.field("deployment")), one_line(visit.field("user")), visit.field("days")
    kind = TokenKind.USER if visit.field("kind") == TokenKind.USER else TokenKind.ORGANIZATION
    possible = SCOPES_OF_KIND[kind]
    scopes = [scope for scope in possible if scope in chosen(visit, "scopes")]
    if not scopes or (kind is TokenKind.USER and not name) or days not in dict(EXPIRIES):
        return await _crew_page(visit, BadToken("A token needs a right, and a user token needs a user."))
    control = visit.dashboard.control
    try:
        token = await control.tokens.create(
            (await control.management.get(slug)).id if slug else None,
            user=await control.tokens.enabled_user(name) if kind is TokenKind.USER else None,
            expires_at=(expires_at := datetime.now(UTC) + timedelta(days=int(days)) if days else None),
            scopes=None if tuple(scopes) == possible else scopes,
            by=visit.actor,
        )
    except REFUSED as error:
        return await _crew_page(visit, error)
    whose = f"a User Bearer Token of {name}" if kind is TokenKind.USER else "a Bearer Token of the organization"
    about = f"It is {whose}, for {f'the crew {slug}' if slug else 'every crew'}."
    base_url = f"{visit.dashboard.server_url}/crews/{slug}" if slug else None
    return visit.page("token_made.html", token=token.reveal(), about=about, expires_at=expires_at, base_url=base_url)


@ROUTES.post("/tokens/{token}/revoke", Role.VIEWER)
async def revoke(visit: Visit) -> Response:
    await end_token(visit.dashboard.control, visit.path["token"], visit.person.role, visit.actor)
    everyone = "?all=1" if visit.field("all") == "1" else ""
    return visit.redirect(f"/ui/tokens{everyone}", notice="The token is revoked. Every server refuses it.")


async def _personal_page(visit: Visit, error: WindlassError | None = None) -> Response:
    fields = {name: visit.field(name) for name in ("name", "user")}
    expiries = await _expiries(visit)
    days = visit.field("days", "90" if "90" in dict(expiries) else expiries[-1][0])
    context = {"error": error, "expiries": expiries, "days": days, "users": await _users(visit)}
    return visit.page("token_personal.html", BAD if error else 200, **context, **fields)


async def _expiries(visit: Visit) -> tuple[tuple[str, str], ...]:
    """Returns the times that a personal token of the person may have."""
    tokens = visit.dashboard.control.tokens
    if (await tokens.user(visit.person.name)).signed_in_at is None:
        return EXPIRIES
    longest = tokens.rules.longest
    fitting = tuple(one for one in EXPIRIES if one[0] and timedelta(days=int(one[0])) <= longest)
    return fitting or (("", "As long as the server permits"),)


async def _crew_page(visit: Visit, error: WindlassError | None = None) -> Response:
    wanted = DeploymentFilter()
    crews = [row.slug for row in await visit.dashboard.control.management.deployments(wanted, limit=MOST_NAMED)]
    fields = {name: visit.field(name) for name in ("deployment", "user")}
    return visit.page(
        "token_crew.html",
        BAD if error else 200,
        error=error,
        crews=crews,
        users=await _users(visit),
        kind=visit.field("kind", "organization"),
        chosen=chosen(visit, "scopes") if error else ["read", "run"],
        scopes=SCOPES,
        expiries=EXPIRIES,
        days=visit.field("days", "365"),
        **fields,
    )


async def _users(visit: Visit) -> list[str]:
    if not visit.may(Role.OWNER):
        return []
    return [user.name for user in await visit.dashboard.control.tokens.users(limit=MOST_NAMED)]

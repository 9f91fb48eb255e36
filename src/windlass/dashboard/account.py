"""The page of the person's own account: password, sessions, appearance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.access.authentication import TooManyRequests
from windlass.access.openid import SignInRefused
from windlass.access.sessions import SHORTEST_PASSWORD, BadPassword
from windlass.dashboard.cookies import EXACT_TIMES, THEME, THEMES, TIMES
from windlass.dashboard.routes import Routes
from windlass.dashboard.sign_in import after
from windlass.kickoffs.ids import parse_id
from windlass.rights import Role

if TYPE_CHECKING:
    from starlette.responses import Response

    from windlass.dashboard.routes import Visit

ROUTES = Routes()
YEAR = 365 * 24 * 3600
BAD, TOO_MANY = 400, 429


@ROUTES.get("/account", Role.VIEWER)
async def show(visit: Visit) -> Response:
    return await _page(visit)


@ROUTES.post("/account/password", Role.VIEWER)
async def change_password(visit: Visit) -> Response:
    new = visit.field("new")
    try:
        if new != visit.field("again"):
            raise BadPassword("The two new passwords differ.", "Type the new password twice.")  # noqa: TRY301
        await visit.dashboard.sessions.change_password(
            visit.person, visit.field("current"), new, visit.actor, visit.client
        )
    except (BadPassword, SignInRefused, TooManyRequests) as error:
        return await _page(visit, error, TOO_MANY if isinstance(error, TooManyRequests) else BAD)
    return visit.redirect("/ui/account", notice="Your password is set. Your other sessions have ended.")


@ROUTES.post("/account/sessions/{session}/end", Role.VIEWER)
async def end_session(visit: Visit) -> Response:
    if session := parse_id(visit.path["session"]):
        await visit.dashboard.sessions.sign_out(visit.person, session)
    return visit.redirect("/ui/account", notice="The session has ended.")


@ROUTES.post("/account/sign-out-everywhere", Role.VIEWER)
async def sign_out_everywhere(visit: Visit) -> Response:
    ended = await visit.dashboard.sessions.sign_out_everywhere(visit.person, visit.actor)
    count = "1 session has" if ended == 1 else f"{ended} sessions have"
    return visit.redirect("/ui/sign-in", notice=f"You are signed out everywhere: {count} ended.")


@ROUTES.post("/theme", role=None)
async def set_theme(visit: Visit) -> Response:
    theme = visit.field("theme")
    response = visit.redirect(after(visit.field("back")))
    visit.set_cookie(response, THEME, theme if theme in THEMES else THEMES[0], seconds=YEAR)
    return response


@ROUTES.post("/times", role=None)
async def set_times(visit: Visit) -> Response:
    response = visit.redirect(after(visit.field("back")))
    visit.set_cookie(response, TIMES, EXACT_TIMES if visit.field("times") == EXACT_TIMES else "ago", seconds=YEAR)
    return response


async def _page(visit: Visit, error: Exception | None = None, status: int = 200) -> Response:
    sessions = await visit.dashboard.sessions.sessions_of(visit.person)
    return visit.page("account.html", status, error=error, sessions=sessions, shortest=SHORTEST_PASSWORD)

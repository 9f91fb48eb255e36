"""The page on which a person signs in: by a link that is valid once, or by a password."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from windlass.access.authentication import TooManyRequests
from windlass.access.openid import SignInRefused
from windlass.access.sessions import LIFETIME
from windlass.dashboard.routes import Routes

if TYPE_CHECKING:
    from starlette.responses import Response

    from windlass.dashboard.routes import Visit

ROUTES = Routes()
HOME = "/ui/"
REFUSED, TOO_MANY = 403, 429


@ROUTES.get("/sign-in", role=None)
async def show(visit: Visit) -> Response:
    if code := visit.query.get("code"):
        # A program that looks at links, and a link on another site, must not use it up.
        is_opened = visit.request.headers.get("sec-fetch-site") in {"none", "same-origin"}
        return await _by_link(visit, code) if is_opened else visit.page("sign_in_link.html", code=code)
    if visit.signed_in is not None:
        return visit.redirect(after(visit.query.get("next")))
    return await form(visit)


@ROUTES.post("/sign-in", role=None)
async def sign_in(visit: Visit) -> Response:
    if code := visit.field("code"):
        return await _by_link(visit, code)
    try:
        cookie = await visit.dashboard.sessions.by_password(
            visit.field("name").strip(), visit.field("password"), visit.client
        )
    except (SignInRefused, TooManyRequests) as error:
        return await refused(visit, error)
    return await begin(visit, cookie, visit.field("next"))


@ROUTES.post("/sign-out", role=None)
async def sign_out(visit: Visit) -> Response:
    if visit.signed_in is not None:
        await visit.dashboard.sessions.sign_out(visit.signed_in)
    response = visit.redirect("/ui/sign-in", notice="You are signed out.")
    response.delete_cookie(visit.dashboard.sessions.cookie, path=visit.dashboard.cookie_path)
    return response


async def refused(visit: Visit, error: SignInRefused | TooManyRequests) -> Response:
    """Returns the page with the form, and why the sign-in was refused."""
    if isinstance(error, SignInRefused):
        return await form(visit, error, REFUSED)
    page = await form(visit, error, TOO_MANY)
    page.headers["Retry-After"] = str(math.ceil(error.retry_after))
    return page


async def form(visit: Visit, error: Exception | None = None, status: int = 200) -> Response:
    """Returns the page with the form, and the reason of a failed sign-in."""
    following = visit.field("next") or visit.query.get("next", "")
    is_first = not await visit.dashboard.sessions.has_passwords()
    return visit.page(
        "sign_in.html", status, error=error, name=visit.field("name"), following=following, is_first=is_first
    )


async def begin(visit: Visit, cookie: str, following: str | None) -> Response:
    """Gives the browser the cookie of a new session, and leads it to the page that it asked for.

    The session that the browser had before ends.
    """
    if visit.signed_in is not None:
        await visit.dashboard.sessions.sign_out(visit.signed_in)
    response = visit.redirect(after(following))
    seconds = int(LIFETIME.longest.total_seconds())
    visit.set_cookie(response, visit.dashboard.sessions.cookie, cookie, seconds=seconds)
    return response


def after(path: str | None) -> str:
    """Returns the page to show after the sign-in: `path`, if it is one of this dashboard."""
    is_own = path is not None and path.startswith("/ui/") and "\\" not in path and path.isprintable()
    return path if path is not None and is_own and not path.startswith("/ui/sign-in") else HOME


async def _by_link(visit: Visit, code: str) -> Response:
    try:
        cookie = await visit.dashboard.sessions.by_link(code, visit.client)
    except (SignInRefused, TooManyRequests) as error:
        if visit.signed_in is not None:  # the link was opened twice
            return visit.redirect(HOME)
        return await refused(visit, error)
    return await begin(visit, cookie, visit.query.get("next"))

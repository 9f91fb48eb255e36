"""The dashboard: pages for people, at /ui. It calls the functions of the control API and of the crew API."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Mount, Route, Router

from windlass.access.tokens import NoSuchUser
from windlass.api.control_api.errors import translated
from windlass.api.errors import TITLES, Problem, problem_of, unexpected, wrong_method
from windlass.dashboard import (
    account,
    approvals,
    audit,
    credentials,
    crew_frame,
    crew_run,
    crew_settings,
    crew_status,
    crews,
    deploy,
    environment,
    execution,
    executions,
    identity,
    openid,
    people,
    sign_in,
    system,
    tokens,
    versions,
    webhooks,
)
from windlass.dashboard.dashboard import PATH
from windlass.dashboard.routes import SignInNeeded, Visit
from windlass.dashboard.static_files import static_file
from windlass.deployments.credentials import NoSuchCredential
from windlass.deployments.deploys import NoSuchBuild
from windlass.deployments.members import NothingSeen
from windlass.deployments.webhooks import NoSuchDelivery, NoSuchWebhook
from windlass.errors import DatabaseUnavailable
from windlass.store.managing import NoSuchDeployment

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from windlass.dashboard.dashboard import Dashboard

PAGES = (
    sign_in.ROUTES,
    openid.ROUTES,
    account.ROUTES,
    crews.ROUTES,
    crew_frame.ROUTES,
    crew_status.ROUTES,
    crew_run.ROUTES,
    deploy.ROUTES,
    versions.ROUTES,
    system.ROUTES,
    executions.ROUTES,
    execution.ROUTES,
    approvals.ROUTES,
    environment.ROUTES,
    crew_settings.ROUTES,
    webhooks.ROUTES,
    credentials.ROUTES,
    identity.ROUTES,
    people.ROUTES,
    tokens.ROUTES,
    audit.ROUTES,
)
NOT_FOUND, METHOD_NOT_ALLOWED = 404, 405
WORDS: dict[type[Exception], str] = {
    DatabaseUnavailable: "The server does not reach its database at the moment. Load the page again in some seconds.",
    NoSuchDeployment: "There is no crew with this name. It may have been removed.",
    NoSuchBuild: "There is no such build. It may have been removed with its crew.",
    NothingSeen: "There is nothing at this address that you see. It may have been removed, or be of a crew of others.",
    NoSuchCredential: "There is no credential with this name. It may have been removed or renamed.",
    NoSuchDelivery: "There is no delivery with this id. It may have been removed after its retention time.",
    NoSuchWebhook: "This webhook is not set any more.",
    NoSuchUser: "There is no user with this name. The user may have been removed.",
}
"""What a person reads in place of the words for programs."""


class Pages:
    """Serves the pages, also those of errors."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard

    def routes(self) -> list[Route | Mount]:
        return [
            Route("/", self._to_crews, methods=["GET"]),
            Route(PATH, self._to_crews, methods=["GET"]),
            Mount(PATH, app=self._app),
        ]

    @cached_property
    def _router(self) -> Router:
        pages = [route for group in PAGES for route in group.mounted(self._dashboard)]
        return Router([*pages, Route("/static/{name:path}", static_file, methods=["GET"])], redirect_slashes=False)

    async def _to_crews(self, _: Request) -> Response:
        return RedirectResponse(self._dashboard.url(f"{PATH}/"), 303)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers with a page, also to an error, until a response has started."""
        try:
            await self._router(scope, receive, send)
        except SignInNeeded:
            await self._to_sign_in(scope)(scope, receive, send)
        except Exception as error:
            problem = _problem(error, scope)
            if problem is None:
                raise
            page = await self._error_page(problem, scope)
            await page(scope, receive, send)

    def _to_sign_in(self, scope: Scope) -> Response:
        here = Visit(Request(scope), self._dashboard, None).here
        after = f"?next={quote(here)}" if scope["method"] == "GET" and here != f"{PATH}/" else ""
        return RedirectResponse(self._dashboard.url(f"{PATH}/sign-in{after}"), 303)

    async def _error_page(self, problem: Problem, scope: Scope) -> Response:
        request = Request(scope)
        visit = getattr(request.state, "visit", None)
        if visit is None:  # no route has looked who it is
            sessions = self._dashboard.sessions
            is_missing = problem.status == NOT_FOUND
            person = await sessions.person(request.cookies.get(sessions.cookie)) if is_missing else None
            visit = Visit(request, self._dashboard, person)
        page: Response = visit.page("error.html", problem.status, title=TITLES[problem.status], message=problem.message)
        page.headers.update(problem.headers)
        return page


def _problem(error: Exception, scope: Scope) -> Problem | None:
    """Returns the error as a Problem, None for one that the server itself answers."""
    if isinstance(error, HTTPException):
        if error.status_code == NOT_FOUND:
            return Problem(
                NOT_FOUND, "There is no page at this address. It may have moved, or what it showed was removed."
            )
        if error.status_code == METHOD_NOT_ALLOWED:
            message = "This address only takes forms. Go to the page that has the form, and send it from there."
            return Problem(METHOD_NOT_ALLOWED, message, headers=wrong_method(error.headers or {}).headers)
    problem = problem_of(translated(error)) or unexpected(error, scope["method"], scope["path"])
    words = next((words for kind, words in WORDS.items() if isinstance(error, kind)), problem.message)
    return Problem(problem.status, words, headers=problem.headers)

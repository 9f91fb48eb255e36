"""Deploys from a zip or from git, and the page of a build with its log, live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windlass.api.control_api.errors import translated
from windlass.api.control_api.uploads import pieces
from windlass.api.errors import Problem, bad_request, problem_of
from windlass.dashboard.crew_frame import crew_page
from windlass.dashboard.routes import Routes, one_line, whole_number
from windlass.errors import WindlassError
from windlass.kickoffs.ids import parse_id
from windlass.rights import Role
from windlass.store.managing import LARGEST_NUMBER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from starlette.responses import Response

    from windlass.dashboard.routes import Visit
    from windlass.deployments.deploys import Source

ROUTES = Routes()
LINES = 1000
"""The lines of a log in one page."""
WAIT = 10.0
"""Seconds that a request for more lines waits for them."""
MOST_BUILDS = 20
LONGEST_NUMBER = len(str(LARGEST_NUMBER))
BY = {"by": "dashboard"}


@ROUTES.get("/deploy", Role.DEVELOPER)
async def show(visit: Visit) -> Response:
    return visit.page("deploy.html", **_form(visit.query))


@ROUTES.upload("/deploy", Role.DEVELOPER)
async def create(visit: Visit) -> Response:
    """Adds a deployment with its first build."""
    deploys, given = visit.dashboard.control.deploys, {}
    try:
        if _is_upload(visit):
            given = {"name": one_line(visit.field("name"))}
            slug = await deploys.slug_of_new(given["name"])
            source = await _uploaded(visit)
        else:
            given = _git_fields(visit)
            slug = await deploys.slug_of_new(given["name"])
            source = _from_git(visit, given)
        build = await deploys.create(slug, source, visit.actor)
    except (Problem, WindlassError) as error:
        problem = _problem(error)
        return visit.page("deploy.html", problem.status, **_form(given, problem, is_git=not _is_upload(visit)))
    assert build is not None  # noqa: S101 - there is a source
    return visit.redirect(f"/ui/builds/{build.id}")


@ROUTES.get("/crews/{slug}/deploy", Role.DEVELOPER)
async def show_next(visit: Visit) -> Response:
    row = await visit.dashboard.control.management.show(visit.path["slug"])
    return await _next_page(visit, await _git_origin(visit, row.id))


@ROUTES.upload("/crews/{slug}/deploy", Role.DEVELOPER)
async def build_next(visit: Visit) -> Response:
    """Starts a build of a deployment."""
    control, slug, given = visit.dashboard.control, visit.path["slug"], {}
    await control.management.get(slug)
    try:
        if _is_upload(visit):
            source = await _uploaded(visit)
        else:
            given = _git_fields(visit)
            source = _from_git(visit, given)
        build = await control.deploys.build(slug, source, visit.actor)
    except (Problem, WindlassError) as error:
        problem = _problem(error)
        return await _next_page(visit, given, problem, is_git=not _is_upload(visit))
    return visit.redirect(f"/ui/builds/{build.id}")


@ROUTES.post("/crews/{slug}/redeploy", Role.DEVELOPER)
async def redeploy(visit: Visit) -> Response:
    build = await visit.dashboard.control.deploys.redeploy(visit.path["slug"], visit.actor)
    return visit.redirect(f"/ui/builds/{build.id}")


@ROUTES.get("/builds/{build}", Role.VIEWER)
async def show_build(visit: Visit) -> Response:
    """Returns the page of a build. With `after`, its log begins after that line: the live part asks so for the next
    lines, and waits for them.
    """
    deploys, build = visit.dashboard.control.deploys, parse_id(visit.path["build"])
    after = min(whole_number(visit.query.get("after"), LONGEST_NUMBER) or 0, LARGEST_NUMBER)
    is_part = visit.request.headers.get("hx-request") == "true"
    page = await deploys.log(build, after=after, limit=LINES, wait=WAIT if is_part and after else 0.0)
    found = page.build
    return await crew_page(
        visit,
        "build.html",
        "Versions",
        crew=await visit.dashboard.control.management.show(found.slug),
        build=found,
        lines=page.lines,
        after=after,
        next_after=page.next_after,
        has_more=len(page.lines) == LINES,
    )


async def _uploaded(visit: Visit) -> Source:
    file = visit.files.get("file")
    if file is None or not file.filename:
        raise bad_request("Choose a zip file of the project.")
    return await visit.dashboard.control.deploys.source_of_zip(pieces(file), {"type": "zip", **BY})


def _from_git(visit: Visit, given: Mapping[str, str]) -> Source:
    ref, subfolder = given["ref"] or None, given["subfolder"] or None
    return visit.dashboard.control.deploys.source_of_git(given["url"], ref, subfolder, BY)


async def _git_origin(visit: Visit, deployment: UUID) -> dict[str, str]:
    """Returns the repository of the newest build from git."""
    builds = await visit.dashboard.control.deploys.builds_of(deployment, before=None, limit=MOST_BUILDS)
    origin: Mapping[str, Any] = next((one.origin for one in builds if one.origin["type"] == "git"), {})
    return {name: str(origin.get(name) or "") for name in ("url", "ref", "subfolder")}


async def _next_page(
    visit: Visit, given: Mapping[str, str], problem: Problem | None = None, *, is_git: bool | None = None
) -> Response:
    status = problem.status if problem else 200
    is_git = bool(given.get("url")) if is_git is None else is_git
    return await crew_page(visit, "crew_deploy.html", "Versions", status, **_form(given, problem, is_git=is_git))


def _form(given: Mapping[str, str], problem: Problem | None = None, *, is_git: bool = False) -> dict[str, Any]:
    texts = {name: given.get(name, "") for name in ("name", "url", "ref", "subfolder")}
    return {"given": texts, "error": problem, "is_git": is_git}


def _git_fields(visit: Visit) -> dict[str, str]:
    return {name: one_line(visit.field(name)) for name in ("name", "url", "ref", "subfolder")}


def _is_upload(visit: Visit) -> bool:
    return visit.request.headers.get("content-type", "").startswith("multipart/form-data")


def _problem(error: Exception) -> Problem:
    """Returns the error as the form shows it. Raises any other one."""
    problem = problem_of(translated(error))
    if problem is None:
        raise error
    return problem

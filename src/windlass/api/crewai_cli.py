"""The endpoints that `crewai deploy create|push|list|status|logs|remove` uses (docs/how-to/crewai-cli.md).

They translate between that program and the functions of the control API. Paths and members are those that the program
sends and reads. Its releases differ little in them.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.datastructures import UploadFile
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from windlass.api.bodies import read_object
from windlass.api.control_api.callers import authorized
from windlass.api.control_api.errors import translated
from windlass.api.control_api.uploads import pieces, uploaded_form
from windlass.api.errors import Problem, bad_request, problem_of
from windlass.deployments.registration import slug_of
from windlass.deployments.variables import GivenVariable, check
from windlass.kickoffs.ids import parse_id
from windlass.rights import Role
from windlass.secrets.secret import Secret
from windlass.store.managing import NoSuchDeployment
from windlass.store.overview import DeploymentFilter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.datastructures import FormData
    from starlette.requests import Request

    from windlass.api.control_api.callers import Caller
    from windlass.api.control_api.dependencies import ControlApi
    from windlass.deployments.deploys import Source
    from windlass.store.builds import Build
    from windlass.store.overview import DeploymentRow

    Endpoint = Callable[[Request], Awaitable[Response]]
    Handler = Callable[[Request, Caller], Awaitable[Response]]

PATH = "/crewai_plus"
API = f"{PATH}/api/v1"
MOST_LISTED = 1000
MOST_LINES = 1000
MOST_BUILDS = 20
ENVIRONMENT = re.compile(r"env\[([^\]]*)\]")
STATUS = {"building": "Building", "online": "Online", "paused": "Paused", "failed": "Failed"}


class CrewaiCli:
    def __init__(self, control: ControlApi) -> None:
        self._control = control

    def routes(self) -> list[Route]:
        view, change = Role.VIEWER, Role.DEVELOPER
        table: list[tuple[str, str, Role, Handler]] = [
            ("GET", "/crews", view, self._list),
            ("POST", "/crews", change, self._create_from_git),
            ("POST", "/crews/zip", change, self._create_from_zip),
            ("POST", "/crews/{uuid}/zip_update", change, self._update_from_zip),
            ("GET", "/me/organizations", view, self._organizations),
        ]
        for crew in ("/crews/by-name/{name}", "/crews/{uuid}"):
            table += [
                ("GET", f"{crew}/status", view, self._status),
                ("GET", f"{crew}/logs/{{kind}}", view, self._logs),
                ("POST", f"{crew}/deploy", change, self._deploy_again),
                ("DELETE", crew, change, self._remove),
            ]
        routes = [
            Route(API + path, self._endpoint(role, handler), methods=[method]) for method, path, role, handler in table
        ]
        return [
            *routes,
            Route(f"{PATH}/deployments/{{slug}}", self._page, methods=["GET"]),
        ]

    def _endpoint(self, role: Role, handle: Handler) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            try:
                return await handle(request, await authorized(request, self._control.access, role))
            except Exception as error:
                problem = problem_of(translated(error))
                if problem is None:
                    raise
                return refusal(problem)

        return endpoint

    async def _list(self, _: Request, caller: Caller) -> Response:
        rows = await self._control.management.deployments(DeploymentFilter(sees=caller.actor.sees), limit=MOST_LISTED)
        return JSONResponse([facts(row) for row in rows])

    async def _organizations(self, _: Request, __: Caller) -> Response:
        """The program asks a person to choose one, if there are any."""
        return JSONResponse([])

    async def _create_from_git(self, request: Request, caller: Caller) -> Response:
        given = await self._json(request)
        deploy = given.get("deploy")
        if not isinstance(deploy, dict):
            raise bad_request("The body needs the member `deploy`, an object.")
        name, url = text_of(deploy, "name"), text_of(deploy, "repo_clone_url")
        slug = await self._control.deploys.slug_of_new(name)
        source = self._control.deploys.source_of_git(https_of(url), None, None, {"by": "crewai"})
        return await self._created(slug, source, deploy.get("env"), caller)

    async def _create_from_zip(self, request: Request, caller: Caller) -> Response:
        async with uploaded_form(request, self._control) as form:
            slug = await self._control.deploys.slug_of_new(field(form, "name"))
            source = await self._zip(form)
            return await self._created(slug, source, environment_of(form), caller)

    async def _update_from_zip(self, request: Request, caller: Caller) -> Response:
        row = await self._found(request, caller)
        async with uploaded_form(request, self._control) as form:
            source = await self._zip(form)
            await self._set(row.slug, environment_of(form), caller)
        return await self._building(row.slug, source, caller)

    async def _created(self, slug: str, source: Source, environment: Any, caller: Caller) -> Response:
        """Adds the deployment with its variables, before its first build reads them."""
        variables_of(environment)  # refused before anything is made
        await self._control.deploys.create(slug, None, caller.actor)
        await self._set(slug, environment, caller)
        return await self._building(slug, source, caller, status=HTTPStatus.CREATED)

    async def _deploy_again(self, request: Request, caller: Caller) -> Response:
        """Builds the newest commit of the deployment's repository."""
        row = await self._found(request, caller)
        origin = next((one.origin for one in await self._builds(row) if one.origin["type"] == "git"), None)
        if origin is None:
            raise bad_request(
                f"The deployment {row.slug} was made from files, not from a git repository. Send its files again."
            )
        noted = {"by": "crewai", **{name: origin[name] for name in ("entrypoint",) if name in origin}}
        source = self._control.deploys.source_of_git(origin["url"], origin.get("ref"), origin.get("subfolder"), noted)
        return await self._building(row.slug, source, caller)

    async def _status(self, request: Request, caller: Caller) -> Response:
        row = await self._found(request, caller)
        latest = next(iter(await self._builds(row)), None)
        kind = "any_git" if latest is not None and latest.origin["type"] == "git" else "zip"
        found = {**facts(row), "id": row.slug, "source_type": kind}
        if latest is not None and latest.state == "failed":
            found |= {"error_message": latest.error, "error_suggested_fix": latest.hint}
        return JSONResponse(found)

    async def _logs(self, request: Request, caller: Caller) -> Response:
        """Returns the log of the latest build, for each kind of log that the program asks for."""
        row = await self._found(request, caller)
        latest = next(iter(await self._builds(row)), None)
        if latest is None:
            return JSONResponse([])
        page = await self._control.deploys.log(latest.id, after=0, limit=MOST_LINES, wait=0.0)
        lines = [{"timestamp": one.at.isoformat(), "level": one.level, "message": one.message} for one in page.lines]
        return JSONResponse(lines)

    async def _remove(self, request: Request, caller: Caller) -> Response:
        row = await self._found(request, caller)
        await self._control.deploys.remove(row.slug, caller.actor, stop=False)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _page(self, request: Request) -> Response:
        """Leads a browser, which the program opens after a deploy, to the page of the crew's API."""
        slug = slug_of(request.path_params["slug"])
        return RedirectResponse(f"{self._control.base_url(slug)}/docs", HTTPStatus.SEE_OTHER)

    async def _found(self, request: Request, caller: Caller) -> DeploymentRow:
        """Returns the deployment that the path names by its name or its id. Raises NoSuchDeployment."""
        sees, name = caller.actor.sees, request.path_params.get("name")
        given = slug_of(name) if name is not None else request.path_params["uuid"]
        found = None if name is not None else parse_id(given)
        wanted = DeploymentFilter(id=found, slug=None if name is None else given, sees=sees)
        rows = await self._control.management.deployments(wanted, limit=1) if found or name is not None else []
        if not rows:
            raise NoSuchDeployment(given)
        return rows[0]

    async def _builds(self, row: DeploymentRow) -> list[Build]:
        return await self._control.deploys.builds_of(row.id, before=None, limit=MOST_BUILDS)

    async def _building(
        self, slug: str, source: Source, caller: Caller, *, status: HTTPStatus = HTTPStatus.OK
    ) -> Response:
        await self._control.deploys.build(slug, source, caller.actor)
        row = await self._control.management.show(slug)
        return JSONResponse({"uuid": str(row.id), "status": "Building", "name": slug, "id": slug}, status)

    async def _set(self, slug: str, environment: Any, caller: Caller) -> None:
        """Sets the variables of a project's .env, except those that take their values from a secret manager: the
        program sends the .env at each push, and nobody chose these values for the deployment.
        """
        if given := variables_of(environment):
            kept = {one.name for one in await self._control.management.variables(slug) if one.source.is_managed}
            new = [one for one in given if one.name not in kept]
            await self._control.management.set_variables(slug, new, caller.actor)

    async def _zip(self, form: FormData) -> Source:
        file = form.get("zip_file")
        if not isinstance(file, UploadFile):
            raise bad_request("The form needs the file `zip_file`, a zip of the project.")
        return await self._control.deploys.source_of_zip(pieces(file), {"type": "zip", "by": "crewai"})

    async def _json(self, request: Request) -> dict[str, Any]:
        return await read_object(request, largest=self._control.largest_body, seconds=self._control.request_timeout)


def facts(row: DeploymentRow) -> dict[str, Any]:
    return {"name": row.slug, "uuid": str(row.id), "status": STATUS[row.state]}


def refusal(problem: Problem) -> Response:
    """Returns the problem as the program shows it: it prints `error`, or for 422 each member as a list."""
    body: dict[str, Any] = {"error": problem.message, "message": problem.message}
    return JSONResponse(body, problem.status, problem.headers)


def text_of(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise bad_request(f"The body needs the member `{name}`, a text.")
    return value


def https_of(url: str) -> str:
    """Returns the https address of a repository whose address is git's short form for ssh: git@host:path."""
    short = re.fullmatch(r"(?:\w+@)?([\w.-]+):(?!//)(.+)", url)
    return f"https://{short[1]}/{short[2]}" if short else url


def field(form: FormData, name: str) -> str:
    value = form.get(name)
    if not isinstance(value, str) or not value:
        raise bad_request(f"The form needs the field `{name}`.")
    return value


def environment_of(form: FormData) -> dict[str, Any]:
    """Returns the fields env[NAME]."""
    return {found[1]: value for name, value in form.multi_items() if (found := ENVIRONMENT.fullmatch(name))}


def variables_of(environment: Any) -> list[GivenVariable]:
    """Returns the variables of a project's .env. All are secret, because the file does not mark secrets.

    Raises BadVariable, and Problem for values that are no texts.
    """
    if environment is None:
        return []
    if not isinstance(environment, dict) or not all(isinstance(value, str) for value in environment.values()):
        raise bad_request("`env` must be an object with texts.")
    variables = [GivenVariable(name, Secret(value)) for name, value in environment.items()]
    for one in variables:
        check(one)
    return variables

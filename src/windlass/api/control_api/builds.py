"""Endpoints that deploy: new deployments, builds and their logs, versions, promote, rollback, removal."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Request
from fastapi import Query as InQuery
from pydantic import BaseModel, Field

from windlass.api.control_api.answers import Body, DeploymentAnswer, Page, Query, Text, answer_of
from windlass.api.control_api.callers import ControlRoute, Developer, Viewer
from windlass.api.control_api.dependencies import Control, id_cursor
from windlass.api.control_api.deployments import Slug, deployment_answer
from windlass.api.control_api.uploads import BuildBody, NewDeploymentBody, git_source, is_zip, json_of, source_of
from windlass.api.errors import bad_request
from windlass.kickoffs.ids import parse_id
from windlass.store.builds import Build
from windlass.store.managing import LARGEST_NUMBER, VersionRow

router = APIRouter(route_class=ControlRoute, tags=["builds"])
Message = Annotated[Text | None, InQuery(description="A note that the list of builds shows.")]
Entrypoint = Annotated[
    Text | None,
    InQuery(
        description="What to serve, in place of what the project declares: `FILE.py:NAME` or `MODULE:NAME`. A redeploy "
        "keeps it."
    ),
]
Number = Annotated[int, Path(ge=1, le=LARGEST_NUMBER, description="The number of the version.")]
ZIP: dict[str, Any] = {"application/zip": {"schema": {"type": "string", "format": "binary"}}}


class BuildAnswer(BaseModel):
    """A build. It makes a version of a deployment from the files of a project."""

    id: UUID
    deployment: str
    state: Literal["queued", "building", "ready", "failed", "superseded"] = Field(
        description="`superseded`: a newer build was queued before this one began, so this one was not done."
    )
    origin: dict[str, Any] = Field(description="Where the files came from: its `type`, and the place.")
    error: str | None = Field(description="Why the build failed.")
    hint: str | None = Field(description="What to do about it.")
    changes: dict[str, Any] | None = Field(description="What changed against the version that was current before.")
    version: int | None = Field(description="The number of the version that it made.")
    created_by: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    builds_before: int | None = Field(
        description="How many builds are done before this one, as far as is known. Null: it does not wait."
    )


class DeployedAnswer(BaseModel):
    """A new deployment, with its first build. The build is null if the request had no source."""

    deployment: DeploymentAnswer
    build: BuildAnswer | None


class StartedAnswer(BaseModel):
    build: BuildAnswer


class LogLineItem(BaseModel):
    seq: int
    at: datetime
    level: Literal["info", "warning", "error"]
    message: str


class LogAnswer(BaseModel):
    """The next lines of the log of a build."""

    items: list[LogLineItem]
    state: Literal["queued", "building", "ready", "failed", "superseded"] = Field(
        description="The state of the build. After it has ended, a page without items is the last one."
    )
    next_after: int = Field(description="The `after` of the next page.")
    builds_before: int | None = Field(description="How many builds are done before this one. Null: it does not wait.")


class LogQuery(BaseModel, extra="forbid"):
    after: int = Field(0, ge=0, le=LARGEST_NUMBER, description="Only lines with a larger `seq`.")
    limit: int = Field(1000, ge=1, le=1000, description="The most lines of the page.")
    wait: float = Field(
        0, ge=0, le=30, description="Seconds to hold the answer, at most, until there is a line or the build has ended."
    )


class VersionItem(BaseModel):
    number: int
    current: bool = Field(description="Whether new kickoffs run on it.")
    created_at: datetime
    build: UUID | None
    changes: dict[str, Any] | None


class VersionAnswer(VersionItem):
    """A version with what was read from its files."""

    kind: str | None
    inputs: dict[str, Any] = Field(description="JSON Schema of the inputs.")
    tasks: list[dict[str, Any]]
    options: dict[str, Any] = Field(description="The options of its project, [tool.windlass].")
    snapshot: str | None = Field(description="The digest of its files.")
    environment: str | None = Field(description="The environment of its packages. Null: that of the server.")


class PromoteBody(Body):
    version: int = Field(ge=1, le=LARGEST_NUMBER)
    current: int | None = Field(None, description="409 unless this is the current version.")


class RollbackBody(Body):
    current: int | None = Field(
        None, description="409 unless this is the current version. So of two rollbacks at once, one is made."
    )


class CurrentVersion(BaseModel):
    version: int = Field(description="The number of the current version.")


class RemovedAnswer(BaseModel):
    slug: str
    message: str


def _source_body(model: type[BaseModel]) -> dict[str, Any]:
    """Returns the description of a body that is a zip or JSON."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = schema.pop("$defs", {})
    inlined = _inlined(schema, definitions)
    return {"requestBody": {"required": True, "content": {**ZIP, "application/json": {"schema": inlined}}}}


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {name: _inlined(value, definitions) for name, value in schema.items()}


@router.post("/deployments", status_code=201, openapi_extra=_source_body(NewDeploymentBody))
async def create_deployment(
    caller: Developer,
    control: Control,
    request: Request,
    name: Annotated[Text | None, InQuery(description="The name of the deployment, for a body that is a zip.")] = None,
    message: Message = None,
    entrypoint: Entrypoint = None,
) -> DeployedAnswer:
    """Adds a deployment, and starts its first build. The body is a zip of the project, or JSON.

    409 if the name is taken: `details.slug` is the name in URLs. Of two requests at once with one name, one gets 409.
    """
    origin = _noted(message, entrypoint)
    if is_zip(request):
        if name is None:
            raise bad_request("The query needs the `name` of the deployment: POST /deployments?name=NAME.")
        slug = await control.deploys.slug_of_new(name)
        build = await control.deploys.create(slug, await source_of(request, control, origin), caller.actor)
    else:
        body = await json_of(request, control, NewDeploymentBody)
        slug = await control.deploys.slug_of_new(body.name)
        source = git_source(control, body.git, origin) if body.git else None
        build = await control.deploys.create(slug, source, caller.actor)
    deployment = deployment_answer(control, await control.management.show(slug))
    return DeployedAnswer(deployment=deployment, build=build and _build(build))


@router.delete("/deployments/{slug}", status_code=202)
async def remove_deployment(
    caller: Developer,
    control: Control,
    slug: Slug,
    stop: Annotated[bool, InQuery(description="Stop the open kickoffs. Otherwise they cause 409.")] = False,
) -> RemovedAnswer:
    """Removes a deployment with its tokens, variables, versions, builds and kickoffs, for good.

    No API knows it from here on, and its name is free. The rest is deleted in the background. Of two requests at once,
    one gets 404.
    """
    await control.deploys.remove(slug, caller.actor, stop=stop)
    return RemovedAnswer(slug=slug, message="The deployment is removed. Its data is being deleted.")


@router.post("/deployments/{slug}/builds", status_code=202, openapi_extra=_source_body(BuildBody))
async def start_build(
    caller: Developer,
    control: Control,
    request: Request,
    slug: Slug,
    message: Message = None,
    entrypoint: Entrypoint = None,
) -> StartedAnswer:
    """Starts a build of a deployment. The body is a zip of the project, or JSON with a git repository.

    Its version becomes the current one when it is ready; the old version serves until then. A build that has not begun
    is superseded by a newer one.
    """
    await control.management.get(slug)
    source = await source_of(request, control, _noted(message, entrypoint))
    return StartedAnswer(build=_build(await control.deploys.build(slug, source, caller.actor)))


@router.post("/deployments/{slug}/redeploy", status_code=202)
async def redeploy(caller: Developer, control: Control, slug: Slug) -> StartedAnswer:
    """Starts a build of the files of the current version. It reads the secrets of static credentials again.

    409 while a build of the deployment has not ended: `details.build` is its id.
    """
    return StartedAnswer(build=_build(await control.deploys.redeploy(slug, caller.actor)))


@router.get("/deployments/{slug}/builds")
async def list_builds(_: Viewer, control: Control, slug: Slug, query: Annotated[Query, InQuery()]) -> Page[BuildAnswer]:
    """Lists the builds of a deployment, newest first."""
    deployment = await control.management.get(slug)
    rows = await control.deploys.builds_of(deployment.id, before=id_cursor(query.cursor), limit=query.limit)
    return Page(items=[_build(row) for row in rows], next_cursor=str(rows[-1].id) if len(rows) == query.limit else None)


@router.get("/builds/{build_id}")
async def show_build(_: Viewer, control: Control, build_id: str) -> BuildAnswer:
    """Returns a build."""
    return _build(await control.deploys.show_build(parse_id(build_id)))


@router.get("/builds/{build_id}/log")
async def show_build_log(
    _: Viewer, control: Control, build_id: str, query: Annotated[LogQuery, InQuery()]
) -> LogAnswer:
    """Returns the next lines of the log of a build. With `wait`, a client follows the log without polling."""
    page = await control.deploys.log(parse_id(build_id), after=query.after, limit=query.limit, wait=query.wait)
    lines = [LogLineItem.model_validate(line, from_attributes=True) for line in page.lines]
    build = page.build
    return LogAnswer(items=lines, state=build.state, next_after=page.next_after, builds_before=build.builds_before)


@router.get("/deployments/{slug}/versions")
async def list_versions(
    _: Viewer, control: Control, slug: Slug, query: Annotated[Query, InQuery()]
) -> Page[VersionItem]:
    """Lists the versions of a deployment, newest first."""
    deployment = await control.management.get(slug)
    rows = await control.deploys.versions(deployment.id, below=_number(query.cursor), limit=query.limit)
    items = [VersionItem.model_validate(row, from_attributes=True) for row in rows]
    return Page(items=items, next_cursor=str(rows[-1].number) if len(rows) == query.limit else None)


@router.get("/deployments/{slug}/versions/{number}")
async def show_version(_: Viewer, control: Control, slug: Slug, number: Number) -> VersionAnswer:
    """Returns a version, with its inputs and tasks."""
    deployment = await control.management.get(slug)
    return _version(await control.deploys.version(deployment.id, number))


@router.post("/deployments/{slug}/promote")
async def promote_version(caller: Developer, control: Control, slug: Slug, body: PromoteBody) -> CurrentVersion:
    """Makes a version the current one. Kickoffs that were accepted before finish on their version."""
    return CurrentVersion(version=await control.deploys.promote(slug, body.version, body.current, caller.actor))


@router.post("/deployments/{slug}/rollback")
async def roll_back(
    caller: Developer, control: Control, slug: Slug, body: RollbackBody | None = None
) -> CurrentVersion:
    """Makes the previous version current. A further rollback goes one more version back."""
    return CurrentVersion(version=await control.deploys.roll_back(slug, body.current if body else None, caller.actor))


def _noted(message: str | None, entrypoint: str | None) -> dict[str, Any]:
    given = {"message": message, "entrypoint": entrypoint}
    return {name: value for name, value in given.items() if value}


def _number(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isdecimal() or not cursor.isascii() or not 1 <= int(cursor[:11]) <= LARGEST_NUMBER:
        raise bad_request("The cursor is not valid. Send the `next_cursor` of the page before, or none.")
    return int(cursor)


def _build(build: Build) -> BuildAnswer:
    return answer_of(BuildAnswer, build, deployment=build.slug)


def _version(row: VersionRow) -> VersionAnswer:
    source, manifest = row.source or {}, row.manifest or {}
    return VersionAnswer(
        number=row.number,
        current=row.current,
        created_at=row.created_at,
        build=row.build,
        changes=row.changes,
        kind=source.get("kind"),
        inputs=manifest.get("inputs_schema", {}),
        tasks=manifest.get("tasks", []),
        options=source.get("options", {}),
        snapshot=source.get("snapshot"),
        environment=source.get("environment"),
    )

"""Receives the source of a build: a zip, which is streamed to a temporary file, or the address of a git repository."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from windlass.api.bodies import read_object
from windlass.api.control_api.answers import Body, Text
from windlass.api.control_api.errors import invalid
from windlass.api.errors import Problem, bad_request, too_slow
from windlass.projects.archive import LARGEST, MB

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.datastructures import FormData, UploadFile
    from starlette.requests import Request

    from windlass.api.control_api.dependencies import ControlApi
    from windlass.deployments.deploys import Source

ZIPS = {"application/zip", "application/x-zip-compressed", "application/octet-stream"}
LONGEST = 1800.0
"""Seconds that an upload may take."""
PIECE = 256 << 10
MOST_FIELDS, LONGEST_FIELD = 300, 80 << 10


class GitSource(Body):
    """A git repository that the server fetches."""

    url: Text = Field(description="An https:// or ssh:// address without a password.")
    ref: Text | None = Field(None, description="A branch, a tag or a commit. Null: the default branch.")
    subfolder: Text | None = Field(None, description="The folder of the project within the repository.")


class BuildBody(Body):
    """The JSON body of a deploy. A zip is sent as `application/zip` instead."""

    git: GitSource


class NewDeploymentBody(Body):
    """The JSON body for a new deployment. A zip is sent as `application/zip` instead, with the name in the query."""

    name: Text
    git: GitSource | None = Field(None, description="Null: the deployment gets its first build later.")


async def source_of(request: Request, control: ControlApi, origin: dict[str, Any]) -> Source:
    """Returns the source in the request's body. Raises Problem, and ProjectError for files that are refused."""
    if not is_zip(request):
        body = await json_of(request, control, BuildBody)
        return git_source(control, body.git, origin)
    with control.uploads.turn():
        chunks = upload_chunks(request, control.request_timeout)
        return await control.deploys.source_of_zip(chunks, {"type": "zip", **origin})


def git_source(control: ControlApi, git: GitSource, origin: dict[str, Any]) -> Source:
    return control.deploys.source_of_git(git.url, git.ref, git.subfolder, origin)


async def json_of(request: Request, control: ControlApi, model: type[Any]) -> Any:
    """Returns the JSON body as the model. Raises Problem 400, 408 or 413."""
    given = await read_object(request, largest=control.largest_body, seconds=control.request_timeout)
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise invalid([{**one, "loc": ("body", *one["loc"])} for one in error.errors()]) from None


@asynccontextmanager
async def uploaded_form(request: Request, control: ControlApi) -> AsyncGenerator[FormData, None]:
    """Yields the form in the body, whose files are temporary. Its size and its time are bounded as an upload's.

    Raises Problem 400, 408, 413 or 503.
    """
    with control.uploads.turn():
        chunks = upload_chunks(request, control.request_timeout)
        parser = MultiPartParser(
            request.headers, chunks, max_files=1, max_fields=MOST_FIELDS, max_part_size=LONGEST_FIELD
        )
        try:
            form = await parser.parse()
        except (MultiPartException, KeyError) as error:
            raise bad_request("The body is no form that the server can read: multipart/form-data.") from error
        try:
            yield form
        finally:
            await form.close()


async def pieces(file: UploadFile) -> AsyncGenerator[bytes, None]:
    while piece := await file.read(PIECE):
        yield piece


def is_zip(request: Request) -> bool:
    """Returns whether the body is a zip, and not JSON. Raises Problem 400 for another type."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in {"", "application/json", *ZIPS}:
        raise bad_request(
            "The body must be a zip of the project (Content-Type: application/zip), or JSON (application/json)."
        )
    return given in ZIPS


async def upload_chunks(request: Request, seconds: float) -> AsyncGenerator[bytes, None]:
    """Yields the body, of at most LARGEST bytes.

    Raises Problem 413, and 408 when no data arrives for `seconds`, or the upload takes longer than LONGEST.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > LARGEST:
        raise _too_large()
    deadline = time.monotonic() + LONGEST
    size, more = 0, True
    while more:
        if time.monotonic() > deadline:
            raise too_slow(LONGEST)
        try:
            async with asyncio.timeout(seconds):
                message = await request.receive()
        except TimeoutError:
            raise too_slow(seconds) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > LARGEST:
            raise _too_large()
        yield chunk


def _too_large() -> Problem:
    message = f"The zip is larger than {LARGEST // MB} MB. Leave out files that the crew does not need (.gitignore)."
    return Problem(413, message, {"limit": LARGEST})

"""The OpenAPI 3.1 document of one crew: the models of schemas.py, the crew's input schema, examples and errors."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from windlass import __version__
from windlass.access.tickets import VALID_SECONDS
from windlass.api.crew_api.answers import (
    ATTEMPTS_EXAMPLE,
    EVENTS_EXAMPLE,
    KICKOFFS_EXAMPLE,
    AttemptsAnswer,
    DeleteAnswer,
    ErrorBody,
    EventsAnswer,
    FilesAnswer,
    InputsAnswer,
    KickoffAnswer,
    KickoffListAnswer,
    KickoffsAnswer,
    StatusAnswer,
    StopAllAnswer,
    StopAnswer,
    TicketAnswer,
)
from windlass.api.crew_api.event_stream import MEDIA_TYPE as STREAM
from windlass.api.crew_api.examples import (
    AT,
    BATCH_ANSWER,
    ERRORS,
    EXAMPLE_ID,
    FILE_EXAMPLE,
    STATUS_EXAMPLES,
    example_inputs,
)
from windlass.api.crew_api.openapi_parts import (
    JSON,
    TAG,
    WithoutTitles,
    binary_answer,
    error,
    json_answer,
    json_examples,
    operation,
    query_parameters,
    ref,
    text_answer,
)
from windlass.api.crew_api.schemas import EventsQuery, KickoffRequest, KickoffsQuery, KickoffsRequest, StopRequest
from windlass.kickoffs.schema_checks import rebase_refs
from windlass.rights import Scope

if TYPE_CHECKING:
    from windlass.kickoffs.manifest import Manifest


ZIP = "application/zip"
STREAM_EXAMPLE = (
    f'id: 1\ndata: {{"seq":1,"attempt":1,"type":"task_started","at":"{AT}","payload":{{"task_name":"plan"}}}}\n\n'
    f'event: end\ndata: {{"kickoff_id":"{EXAMPLE_ID}","status":"completed","state":"SUCCESS"}}\n\n'
)
KICKOFF_ID = {
    "name": "kickoff_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
    "example": EXAMPLE_ID,
}
DESCRIPTION = (
    "Read the inputs, start a kickoff, and poll its status until `state` is `SUCCESS` or `FAILED`. "
    "Every request carries `Authorization: Bearer <token>`; `windlass tokens show` prints the crew's tokens."
)
SCOPES = (
    "A token of the crew. Each operation names the scopes that the token needs, in its `security`. "
    "`read`: inputs, status, list, attempts, events, files. `run`: kickoff and stop. "
    "`admin`: delete; for organization tokens only. "
    "A token has all scopes of its kind unless it was created with fewer. The Bearer Token on the page of a crew has "
    "`read` and `run`."
)
MODELS = (
    KickoffRequest,
    KickoffAnswer,
    KickoffsRequest,
    KickoffsAnswer,
    InputsAnswer,
    StatusAnswer,
    KickoffListAnswer,
    AttemptsAnswer,
    EventsAnswer,
    TicketAnswer,
    FilesAnswer,
    StopAnswer,
    StopRequest,
    StopAllAnswer,
    DeleteAnswer,
    ErrorBody,
)


def crew_document(slug: str, manifest: Manifest, base_url: str) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {"title": manifest.name or slug, "version": __version__, "description": DESCRIPTION},
        "servers": [{"url": base_url}],
        "security": [{"bearer": []}],
        "tags": [{"name": TAG}],
        "paths": _paths(example_inputs(manifest.inputs_schema)),
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": SCOPES}},
            "schemas": {
                **_schemas(),
                "KickoffRequest": _kickoff_schema(manifest),
                "Inputs": _inputs_schema(manifest),
            },
            "responses": {str(status): error(status) for status in ERRORS},
        },
    }


def _inputs_schema(manifest: Manifest) -> dict[str, Any]:
    """Returns the crew's input schema with its references to `#` adapted to its place in the document."""
    return {"title": "Inputs", **rebase_refs(manifest.inputs_schema, "#/components/schemas/Inputs")}


def _kickoff_schema(manifest: Manifest) -> dict[str, Any]:
    """Returns the schema of a kickoff request. `inputs` may be null or missing if the crew has no required input."""
    request = _schemas()["KickoffRequest"]
    inputs: dict[str, Any] = {"$ref": "#/components/schemas/Inputs"}
    required = {"required": ["inputs"]} if manifest.inputs_schema.get("required") else {}
    inputs = inputs if required else {"anyOf": [inputs, {"type": "null"}]}
    return {**request, **required, "properties": {**request["properties"], "inputs": inputs}}


@cache
def _schemas() -> dict[str, Any]:
    modes: list[Any] = [(model, "validation") for model in MODELS]
    _, document = models_json_schema(modes, ref_template="#/components/schemas/{model}", schema_generator=WithoutTitles)
    schemas: dict[str, Any] = document["$defs"]
    schemas["KickoffRequest"].pop("examples", None)
    return schemas


def _paths(inputs: dict[str, Any]) -> dict[str, Any]:
    wait = {
        "name": "wait",
        "in": "query",
        "description": "Seconds to hold the answer, at most, until the kickoff ends or waits for a human.",
        "schema": {"type": "number", "minimum": 0, "maximum": 60},
    }
    return {
        "/": {"get": operation("healthy", "Check that the crew is served", (), text_answer("Healthy"))},
        "/inputs": {
            "get": operation(
                "inputs",
                "Get the inputs of the crew",
                (),
                json_answer("InputsAnswer", _inputs_example(inputs)),
                Scope.READ,
            )
        },
        "/kickoff": {"post": _kickoff(inputs)},
        "/kickoffs": {"post": _kickoffs(inputs), "get": _list_kickoffs()},
        "/kickoffs/{kickoff_id}": {"delete": _delete()},
        "/status/{kickoff_id}": {"get": _status("status", "Get the status of a kickoff", wait)},
        "/{kickoff_id}/status": {
            "get": _status("status_of_old_clients", "Get the status of a kickoff, at the path of older clients", wait)
        },
        "/attempts/{kickoff_id}": {"get": _attempts()},
        "/events/{kickoff_id}": {"get": _events()},
        "/stream-tickets": {"post": _stream_ticket()},
        "/files/{kickoff_id}": {"get": _files()},
        "/files/{kickoff_id}.zip": {"get": _zip()},
        "/files/{kickoff_id}/{path}": {"get": _file()},
        "/stop": {"post": _stop_all()},
        "/stop/{kickoff_id}": {"post": _stop()},
    }


def _kickoff(inputs: dict[str, Any]) -> dict[str, Any]:
    answer = json_answer("KickoffAnswer", {"kickoff_id": EXAMPLE_ID})
    result = operation("kickoff", "Start the crew", (409, 413, 422), answer, Scope.RUN)
    result["parameters"] = [_idempotency_key("The same key within 24 h returns the same kickoff.")]
    content = {JSON: {"schema": ref("KickoffRequest"), "example": {"inputs": inputs}}}
    result["requestBody"] = {"required": True, "content": content}
    return result


def _kickoffs(inputs: dict[str, Any]) -> dict[str, Any]:
    answer = json_answer("KickoffsAnswer", BATCH_ANSWER)
    result = operation("kickoffs", "Start the crew many times", (413,), answer, Scope.RUN)
    result["parameters"] = [
        _idempotency_key("The same key within 24 h returns the same kickoffs, by their places in the list.")
    ]
    both = {"anyOf": [ref("KickoffsRequest"), ref("KickoffsRequest/properties/kickoffs")]}
    example = {"kickoffs": [{"inputs": inputs}, {"inputs": inputs, "meta": {"order": 7}}]}
    result["requestBody"] = {"required": True, "content": {JSON: {"schema": both, "example": example}}}
    return result


def _idempotency_key(description: str) -> dict[str, Any]:
    return {
        "name": "Idempotency-Key",
        "in": "header",
        "description": description,
        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    }


def _status(name: str, summary: str, wait: dict[str, Any]) -> dict[str, Any]:
    return operation(name, summary, (), json_examples("StatusAnswer", STATUS_EXAMPLES), Scope.READ, [KICKOFF_ID, wait])


def _attempts() -> dict[str, Any]:
    answer = json_answer("AttemptsAnswer", ATTEMPTS_EXAMPLE)
    return operation("attempts", "Get the attempts of a kickoff", (), answer, Scope.READ, [KICKOFF_ID])


def _list_kickoffs() -> dict[str, Any]:
    answer = json_answer("KickoffListAnswer", KICKOFFS_EXAMPLE)
    return operation(
        "list_kickoffs",
        "List the kickoffs that the token may see",
        (),
        answer,
        Scope.READ,
        query_parameters(KickoffsQuery),
    )


def _events() -> dict[str, Any]:
    answer = json_answer("EventsAnswer", EVENTS_EXAMPLE)
    answer["content"][STREAM] = {"schema": {"type": "string"}, "example": STREAM_EXAMPLE}
    last = {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "For a stream: only events with a larger `seq`. It overrides `after`.",
        "schema": {"type": "integer", "minimum": 0},
    }
    parameters = [KICKOFF_ID, *query_parameters(EventsQuery), last]
    result = operation(
        "events", "Get a page of the events of a kickoff, or all as a stream", (), answer, Scope.READ, parameters
    )
    result["responses"]["204"] = {"description": "For a stream: the kickoff has ended, and has no further events."}
    result["description"] = (
        f"With `Accept: {STREAM}`, the answer is a stream of Server-Sent Events: the stored events, then each new one "
        "until the kickoff ends. The message `end` is the last one. The query is `after`, and `ticket` in place of the "
        "header Authorization."
    )
    return result


def _stream_ticket() -> dict[str, Any]:
    answer = json_answer("TicketAnswer", {"ticket": "AAAAAGlo5hQ...", "expires_in": VALID_SECONDS})
    result = operation("stream_ticket", "Get a ticket, with which a browser opens a stream", (), answer, Scope.READ)
    result["description"] = (
        "`EventSource` can't send a header. It opens `/events/{kickoff_id}?ticket=...` with a ticket, which has the "
        f"rights of the request's token for this crew, for {VALID_SECONDS} seconds."
    )
    return result


def _files() -> dict[str, Any]:
    answer = json_answer("FilesAnswer", {"kickoff_id": EXAMPLE_ID, "files": [FILE_EXAMPLE]})
    return operation("files", "List the files that the run of a kickoff wrote", (), answer, Scope.READ, [KICKOFF_ID])


def _zip() -> dict[str, Any]:
    return operation(
        "files_as_zip", "Get all files of a kickoff as one zip", (), binary_answer(ZIP), Scope.READ, [KICKOFF_ID]
    )


def _file() -> dict[str, Any]:
    result = operation("file", "Get the content of one file", (), binary_answer("*/*"), Scope.READ)
    result["responses"] |= {
        "206": binary_answer("*/*", "The requested range of the file"),
        "304": {"description": "The file has the ETag that `If-None-Match` names.", "content": {}},
        "416": {"$ref": "#/components/responses/416"},
    }
    path = {
        "name": "path",
        "in": "path",
        "required": True,
        "description": "The path of the file, as the list has it. The slashes of a file in a folder are not encoded.",
        "schema": {"type": "string", "pattern": r"^(?!\.{1,2}$)[^/\\]+$"},
        "example": "report.md",
    }
    headers = {
        "If-None-Match": "The ETag of a known content: the same content gets 304.",
        "Range": "One range of bytes, such as `bytes=0-1023`.",
        "If-Range": "The ETag for which the range holds; for another content the answer is the whole file.",
    }
    described = [
        {"name": name, "in": "header", "description": description, "schema": {"type": "string"}}
        for name, description in headers.items()
    ]
    result["parameters"] = [KICKOFF_ID, path, *described]
    return result


def _stop() -> dict[str, Any]:
    example = {
        "kickoff_id": EXAMPLE_ID,
        "status": "running",
        "state": "STARTED",
        "message": "It is being stopped: its processes are gone within 5 seconds.",
    }
    answer = json_answer("StopAnswer", example)
    return operation("stop", "Stop a kickoff", (), answer, Scope.RUN, [KICKOFF_ID])


def _stop_all() -> dict[str, Any]:
    message = "42 kickoffs are stopped. The processes of those that ran are gone within 5 seconds."
    answer = json_answer("StopAllAnswer", {"stopped": 42, "message": message})
    result = operation("stop_all", "Stop all kickoffs that match", (413,), answer, Scope.RUN)
    example = {"state": "PENDING", "user": "ann", "before": AT}
    result["requestBody"] = {
        "required": True,
        "content": {JSON: {"schema": ref("StopRequest"), "example": example}},
    }
    return result


def _delete() -> dict[str, Any]:
    message = "The kickoff is deleted for good, with its events, journal, files, attempts and task records."
    answer = json_answer("DeleteAnswer", {"kickoff_id": EXAMPLE_ID, "message": message})
    result = operation("delete", "Delete a kickoff permanently, with all its data", (409,), answer, Scope.ADMIN)
    stop = {
        "name": "stop",
        "in": "query",
        "description": "Stop the kickoff first if it has not ended. Otherwise an open kickoff gets 409.",
        "schema": {"type": "boolean", "default": False},
    }
    result["parameters"] = [KICKOFF_ID, stop]
    return result


def _inputs_example(inputs: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {name: {} for name in inputs}, "required": list(inputs)}
    return {"inputs": list(inputs), "schema": schema}

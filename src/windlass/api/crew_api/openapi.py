"""The OpenAPI 3.1 document of one crew: the models of schemas.py, the crew's input schema, examples and errors."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

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
from windlass.api.crew_api.schemas import EventsQuery, KickoffRequest, KickoffsQuery, KickoffsRequest, StopRequest
from windlass.api.errors import TITLES
from windlass.kickoffs.schema_checks import rebase_refs
from windlass.kickoffs.states import Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel

    from windlass.kickoffs.manifest import Manifest


JSON = "application/json"
ZIP = "application/zip"
STREAM_EXAMPLE = (
    f'id: 1\ndata: {{"seq":1,"attempt":1,"type":"task_started","at":"{AT}","payload":{{"task_name":"plan"}}}}\n\n'
    f'event: end\ndata: {{"kickoff_id":"{EXAMPLE_ID}","status":"completed","state":"SUCCESS"}}\n\n'
)
TAG = "crew"
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
    "A token has all scopes of its kind unless it was created with fewer."
)
EVERYWHERE = (400, 401, 404, 405, 408, 421, 429, 431, 500, 503)
RETRY_AFTER = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": {"type": "string", "const": "Bearer"}}},
    405: {"Allow": {"schema": {"type": "string"}}},
    416: {"Content-Range": {"schema": {"type": "string"}}},
    429: RETRY_AFTER,
    503: RETRY_AFTER,
}


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
            "responses": {str(status): _error(status) for status in ERRORS},
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


class _WithoutTitles(GenerateJsonSchema):
    """Omits the titles of members, because pydantic makes them from the names of the members."""

    def field_title_should_be_set(self, _: Any) -> bool:
        return False


@cache
def _schemas() -> dict[str, Any]:
    modes: list[Any] = [(model, "validation") for model in MODELS]
    _, document = models_json_schema(
        modes, ref_template="#/components/schemas/{model}", schema_generator=_WithoutTitles
    )
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
        "/": {"get": _operation("healthy", "Check that the crew is served", (), _text("Healthy"))},
        "/inputs": {
            "get": _operation(
                "inputs", "Get the inputs of the crew", (), _json("InputsAnswer", _inputs_example(inputs)), Scope.READ
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
    answer = _json("KickoffAnswer", {"kickoff_id": EXAMPLE_ID})
    operation = _operation("kickoff", "Start the crew", (409, 413, 422), answer, Scope.RUN)
    operation["parameters"] = [_idempotency_key("The same key within 24 h returns the same kickoff.")]
    content = {JSON: {"schema": _ref("KickoffRequest"), "example": {"inputs": inputs}}}
    operation["requestBody"] = {"required": True, "content": content}
    return operation


def _kickoffs(inputs: dict[str, Any]) -> dict[str, Any]:
    answer = _json("KickoffsAnswer", BATCH_ANSWER)
    operation = _operation("kickoffs", "Start the crew many times", (413,), answer, Scope.RUN)
    operation["parameters"] = [
        _idempotency_key("The same key within 24 h returns the same kickoffs, by their places in the list.")
    ]
    both = {"anyOf": [_ref("KickoffsRequest"), _ref("KickoffsRequest/properties/kickoffs")]}
    example = {"kickoffs": [{"inputs": inputs}, {"inputs": inputs, "meta": {"order": 7}}]}
    operation["requestBody"] = {"required": True, "content": {JSON: {"schema": both, "example": example}}}
    return operation


def _idempotency_key(description: str) -> dict[str, Any]:
    return {
        "name": "Idempotency-Key",
        "in": "header",
        "description": description,
        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    }


def _status(name: str, summary: str, wait: dict[str, Any]) -> dict[str, Any]:
    return _operation(
        name, summary, (), _json_examples("StatusAnswer", STATUS_EXAMPLES), Scope.READ, [KICKOFF_ID, wait]
    )


def _attempts() -> dict[str, Any]:
    answer = _json("AttemptsAnswer", ATTEMPTS_EXAMPLE)
    return _operation("attempts", "Get the attempts of a kickoff", (), answer, Scope.READ, [KICKOFF_ID])


def _list_kickoffs() -> dict[str, Any]:
    answer = _json("KickoffListAnswer", KICKOFFS_EXAMPLE)
    return _operation(
        "list_kickoffs", "List the kickoffs that the token may see", (), answer, Scope.READ, _query(KickoffsQuery)
    )


def _events() -> dict[str, Any]:
    answer = _json("EventsAnswer", EVENTS_EXAMPLE)
    answer["content"][STREAM] = {"schema": {"type": "string"}, "example": STREAM_EXAMPLE}
    last = {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "For a stream: only events with a larger `seq`. It overrides `after`.",
        "schema": {"type": "integer", "minimum": 0},
    }
    parameters = [KICKOFF_ID, *_query(EventsQuery), last]
    operation = _operation(
        "events", "Get a page of the events of a kickoff, or all as a stream", (), answer, Scope.READ, parameters
    )
    operation["responses"]["204"] = {"description": "For a stream: the kickoff has ended, and has no further events."}
    operation["description"] = (
        f"With `Accept: {STREAM}`, the answer is a stream of Server-Sent Events: the stored events, then each new one "
        "until the kickoff ends. The message `end` is the last one. The query is `after`, and `ticket` in place of the "
        "header Authorization."
    )
    return operation


def _stream_ticket() -> dict[str, Any]:
    answer = _json("TicketAnswer", {"ticket": "AAAAAGlo5hQ...", "expires_in": VALID_SECONDS})
    operation = _operation("stream_ticket", "Get a ticket, with which a browser opens a stream", (), answer, Scope.READ)
    operation["description"] = (
        "`EventSource` can't send a header. It opens `/events/{kickoff_id}?ticket=...` with a ticket, which has the "
        f"rights of the request's token for this crew, for {VALID_SECONDS} seconds."
    )
    return operation


def _query(model: type[BaseModel]) -> list[dict[str, Any]]:
    """Returns the members of the model as parameters of a query. A parameter is left out, never null."""
    found = []
    for name, schema in model.model_json_schema(schema_generator=_WithoutTitles)["properties"].items():
        (kind,) = [one for one in schema.pop("anyOf", [{}]) if one.get("type") != "null"]
        description = schema.pop("description")
        given = {**kind, **schema}
        if given.get("default", 0) is None:
            del given["default"]
        found.append({"name": name, "in": "query", "description": description, "schema": given})
    return found


def _files() -> dict[str, Any]:
    answer = _json("FilesAnswer", {"kickoff_id": EXAMPLE_ID, "files": [FILE_EXAMPLE]})
    return _operation("files", "List the files that the run of a kickoff wrote", (), answer, Scope.READ, [KICKOFF_ID])


def _zip() -> dict[str, Any]:
    return _operation(
        "files_as_zip", "Get all files of a kickoff as one zip", (), _binary(ZIP), Scope.READ, [KICKOFF_ID]
    )


def _file() -> dict[str, Any]:
    operation = _operation("file", "Get the content of one file", (), _binary("*/*"), Scope.READ)
    operation["responses"] |= {
        "206": _binary("*/*", "The requested range of the file"),
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
    operation["parameters"] = [KICKOFF_ID, path, *described]
    return operation


def _binary(media_type: str, description: str = "Success") -> dict[str, Any]:
    content = {"schema": {"type": "string", "format": "binary"}, "example": "# Tides\n"}
    return {"description": description, "content": {media_type: content}}


def _stop() -> dict[str, Any]:
    example = {
        "kickoff_id": EXAMPLE_ID,
        "status": "running",
        "state": "STARTED",
        "message": "It is being stopped: its processes are gone within 5 seconds.",
    }
    answer = _json("StopAnswer", example)
    return _operation("stop", "Stop a kickoff", (), answer, Scope.RUN, [KICKOFF_ID])


def _stop_all() -> dict[str, Any]:
    message = "42 kickoffs are stopped. The processes of those that ran are gone within 5 seconds."
    answer = _json("StopAllAnswer", {"stopped": 42, "message": message})
    operation = _operation("stop_all", "Stop all kickoffs that match", (413,), answer, Scope.RUN)
    example = {"state": "PENDING", "user": "ann", "before": AT}
    operation["requestBody"] = {
        "required": True,
        "content": {JSON: {"schema": _ref("StopRequest"), "example": example}},
    }
    return operation


def _delete() -> dict[str, Any]:
    message = "The kickoff is deleted for good, with its events, journal, files, attempts and task records."
    answer = _json("DeleteAnswer", {"kickoff_id": EXAMPLE_ID, "message": message})
    operation = _operation("delete", "Delete a kickoff permanently, with all its data", (409,), answer, Scope.ADMIN)
    stop = {
        "name": "stop",
        "in": "query",
        "description": "Stop the kickoff first if it has not ended. Otherwise an open kickoff gets 409.",
        "schema": {"type": "boolean", "default": False},
    }
    operation["parameters"] = [KICKOFF_ID, stop]
    return operation


def _operation(
    name: str,
    summary: str,
    errors: tuple[int, ...],
    success: dict[str, Any],
    scope: Scope | None = None,
    parameters: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Returns an OpenAPI operation. `scope` is the scope that it needs; None allows every valid token."""
    statuses = sorted({*errors, *EVERYWHERE, *([403] if scope else [])})
    refused = {str(status): {"$ref": f"#/components/responses/{status}"} for status in statuses}
    return {
        "operationId": name,
        "summary": summary,
        "tags": [TAG],
        "security": [{"bearer": [str(scope)] if scope else []}],
        "responses": {"200": success, **refused},
        **({"parameters": [*parameters]} if parameters else {}),
    }


def _error(status: int) -> dict[str, Any]:
    description, details = ERRORS[status]
    example = {"error": TITLES[status], "message": description, "details": details}
    content = {JSON: {"schema": _ref("ErrorBody"), "example": example}}
    return {"description": description, "headers": HEADERS.get(status, {}), "content": content}


def _json(schema: str, example: Any) -> dict[str, Any]:
    return {"description": "Success", "content": {JSON: {"schema": _ref(schema), "example": example}}}


def _json_examples(schema: str, examples: dict[str, Any]) -> dict[str, Any]:
    named = {name: {"value": value} for name, value in examples.items()}
    return {"description": "Success", "content": {JSON: {"schema": _ref(schema), "examples": named}}}


def _text(example: str) -> dict[str, Any]:
    return {"description": "Success", "content": {"text/plain": {"schema": {"type": "string"}, "example": example}}}


def _ref(schema: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{schema}"}


def _inputs_example(inputs: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {name: {} for name in inputs}, "required": list(inputs)}
    return {"inputs": list(inputs), "schema": schema}

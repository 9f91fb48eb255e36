"""The OpenAPI 3.1 document of one crew: the shapes of schemas.py, the crew's own input schema, examples, errors."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from windlass import __version__
from windlass.api.attempts_schema import ATTEMPTS_EXAMPLE, AttemptsAnswer
from windlass.api.examples import BATCH_ANSWER, example_inputs
from windlass.api.moved_schema import moved
from windlass.api.problems import TITLES
from windlass.api.schemas import (
    ErrorBody,
    InputsAnswer,
    KickoffAnswer,
    KickoffRequest,
    KickoffsAnswer,
    KickoffsRequest,
    StatusAnswer,
    StopAnswer,
)
from windlass.api.status_examples import EXAMPLE_ID, STATUS_EXAMPLES

if TYPE_CHECKING:
    from windlass.kickoffs.manifest import Manifest

JSON = "application/json"
TAG = "crew"
KICKOFF_ID = {"name": "kickoff_id", "in": "path", "required": True, "schema": {"type": "string"}, "example": EXAMPLE_ID}
DESCRIPTION = (
    "Discover the inputs, start a kickoff, poll its status until `state` is `SUCCESS` or `FAILED`. "
    "Every request carries `Authorization: Bearer <token>`; `windlass tokens show` prints the crew's tokens."
)
ERRORS: dict[int, tuple[str, dict[str, Any]]] = {
    400: (
        "The body, or a value in it, has a wrong form.",
        {"invalid_inputs": {"budget": "'many' is not of type 'integer'"}},
    ),
    401: ("No token, or none that may be used here.", {}),
    404: ("There is no such crew or kickoff, or it is not this token's to see.", {}),
    405: ("The path takes other methods.", {}),
    408: ("The request did not arrive in time.", {}),
    409: (
        "The idempotency key was used with another body, or a kickoff with this concurrencyKey is open (`reject`).",
        {"kickoff_id": EXAMPLE_ID},
    ),
    413: ("The body is too large.", {"limit": 1048576}),
    422: ("Required inputs are missing.", {"missing_inputs": ["topic", "audience"]}),
    429: (
        "Too many kickoffs of this crew wait; `Retry-After` says when to try again.",
        {"waiting": 10000, "max_waiting": 10000},
    ),
    431: ("The first line and the headers are too long.", {"limit": 65536}),
    500: ("Something failed here; `message` holds the reference under which the log tells what.", {}),
    503: ("The database is away; `Retry-After` says when to ask again.", {}),
}
EVERYWHERE = (401, 404, 405, 408, 431, 500, 503)
RETRY_AFTER = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": {"type": "string", "const": "Bearer"}}},
    405: {"Allow": {"schema": {"type": "string"}}},
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
    AttemptsAnswer,
    StopAnswer,
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
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {**_schemas(), "Inputs": _inputs_schema(manifest)},
            "responses": {str(status): _error(status) for status in ERRORS},
        },
    }


def _inputs_schema(manifest: Manifest) -> dict[str, Any]:
    """It speaks of `#` as of itself; in the document, it stands elsewhere."""
    return {"title": "Inputs", **moved(manifest.inputs_schema, "#/components/schemas/Inputs")}


class _WithoutTitles(GenerateJsonSchema):
    """For those made from members' names only say them once more, in small letters."""

    def field_title_should_be_set(self, _: Any) -> bool:
        return False


@cache
def _schemas() -> dict[str, Any]:
    modes: list[Any] = [(model, "validation") for model in MODELS]
    _, document = models_json_schema(
        modes, ref_template="#/components/schemas/{model}", schema_generator=_WithoutTitles
    )
    schemas: dict[str, Any] = document["$defs"]
    schemas["KickoffRequest"]["properties"]["inputs"] = {"$ref": "#/components/schemas/Inputs"}
    schemas["KickoffRequest"].pop("examples", None)
    return schemas


def _paths(inputs: dict[str, Any]) -> dict[str, Any]:
    wait = {
        "name": "wait",
        "in": "query",
        "description": "Hold the answer until the kickoff ends or waits for a human, at most so many seconds.",
        "schema": {"type": "number", "minimum": 0, "maximum": 60},
    }
    return {
        "/": {"get": _operation("healthy", "Is the crew there?", (), _text("Healthy"))},
        "/inputs": {
            "get": _operation("inputs", "What the crew expects", (), _json("InputsAnswer", _inputs_example(inputs)))
        },
        "/kickoff": {"post": _kickoff(inputs)},
        "/kickoffs": {"post": _kickoffs(inputs)},
        "/status/{kickoff_id}": {"get": _status("status", "How a kickoff stands", wait)},
        "/{kickoff_id}/status": {
            "get": _status("status_of_old_clients", "The same, at the path that old clients use", wait)
        },
        "/attempts/{kickoff_id}": {"get": _attempts()},
        "/stop/{kickoff_id}": {"post": _stop()},
    }


def _kickoff(inputs: dict[str, Any]) -> dict[str, Any]:
    operation = _operation(
        "kickoff", "Start the crew", (400, 409, 413, 422, 429), _json("KickoffAnswer", {"kickoff_id": EXAMPLE_ID})
    )
    operation["parameters"] = [_idempotency_key("The same key within 24 h gives the same kickoff.")]
    content = {JSON: {"schema": _ref("KickoffRequest"), "example": {"inputs": inputs}}}
    operation["requestBody"] = {"required": True, "content": content}
    return operation


def _kickoffs(inputs: dict[str, Any]) -> dict[str, Any]:
    operation = _operation("kickoffs", "Start the crew many times", (400, 413), _json("KickoffsAnswer", BATCH_ANSWER))
    operation["parameters"] = [
        _idempotency_key("The same key within 24 h gives the same kickoffs, by their places in the list.")
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
    operation = _operation(name, summary, (400,), _json_examples("StatusAnswer", STATUS_EXAMPLES))
    operation["parameters"] = [KICKOFF_ID, wait]
    return operation


def _attempts() -> dict[str, Any]:
    operation = _operation("attempts", "What became of each attempt", (), _json("AttemptsAnswer", ATTEMPTS_EXAMPLE))
    operation["parameters"] = [KICKOFF_ID]
    return operation


def _stop() -> dict[str, Any]:
    example = {
        "kickoff_id": EXAMPLE_ID,
        "status": "running",
        "state": "STARTED",
        "message": "It is being stopped: its processes are gone within 5 seconds.",
    }
    operation = _operation("stop", "Stop a kickoff: a waiting one never starts", (), _json("StopAnswer", example))
    operation["parameters"] = [KICKOFF_ID]
    return operation


def _operation(name: str, summary: str, errors: tuple[int, ...], success: dict[str, Any]) -> dict[str, Any]:
    refused = {str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted({*errors, *EVERYWHERE})}
    return {"operationId": name, "summary": summary, "tags": [TAG], "responses": {"200": success, **refused}}


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

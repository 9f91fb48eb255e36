"""The OpenAPI 3.1 document of one crew: the operations, the crew's input schema, examples and errors."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from windlass import __version__
from windlass.api.crew_api.answers import ErrorBody
from windlass.api.crew_api.examples import ERRORS, example_inputs
from windlass.api.crew_api.operations import JSON
from windlass.api.crew_api.webhook_bodies import MODELS, webhooks_of_document
from windlass.api.errors import TITLES
from windlass.kickoffs.schema_checks import rebase_refs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel

    from windlass.api.crew_api.operations import Content, Operation
    from windlass.kickoffs.manifest import Manifest

TAG = "crew"
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
WEBHOOKS = "Requests of the server to addresses that a kickoff or the deployment gives."
EVERYWHERE = (400, 401, 404, 405, 408, 421, 429, 431, 500, 503)
RETRY_AFTER = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": {"type": "string", "const": "Bearer"}}},
    405: {"Allow": {"schema": {"type": "string"}}},
    416: {"Content-Range": {"schema": {"type": "string"}}},
    429: RETRY_AFTER,
    503: RETRY_AFTER,
}


class WithoutTitles(GenerateJsonSchema):
    """Omits the titles of members, because pydantic makes them from the names of the members."""

    def field_title_should_be_set(self, _: Any) -> bool:
        return False


def crew_document(slug: str, manifest: Manifest, base_url: str, operations: Sequence[Operation]) -> dict[str, Any]:
    schemas, inputs = _schemas(_models(operations)), example_inputs(manifest.inputs_schema)
    paths: dict[str, Any] = {}
    for one in operations:
        paths.setdefault(one.path.replace(":path", ""), {})[one.method.lower()] = _operation(one, inputs)
    return {
        "openapi": "3.1.0",
        "info": {"title": slug, "version": __version__, "description": DESCRIPTION},
        "servers": [{"url": base_url}],
        "security": [{"bearer": []}],
        "tags": [{"name": TAG}, {"name": "webhooks", "description": WEBHOOKS}],
        "paths": paths,
        "webhooks": webhooks_of_document(),
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": SCOPES}},
            "schemas": {
                **schemas,
                "KickoffRequest": _kickoff_schema(schemas["KickoffRequest"], manifest),
                "Inputs": _inputs_schema(manifest),
            },
            "responses": {str(status): _error(status) for status in ERRORS},
        },
    }


def _inputs_schema(manifest: Manifest) -> dict[str, Any]:
    """Returns the crew's input schema with its references to `#` adapted to its place in the document."""
    return {"title": "Inputs", **rebase_refs(manifest.inputs_schema, "#/components/schemas/Inputs")}


def _kickoff_schema(request: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    """Returns the schema of a kickoff request. `inputs` may be null or missing if the crew has no required input."""
    inputs: dict[str, Any] = {"$ref": "#/components/schemas/Inputs"}
    required = {"required": ["inputs"]} if manifest.inputs_schema.get("required") else {}
    inputs = inputs if required else {"anyOf": [inputs, {"type": "null"}]}
    return {**request, **required, "properties": {**request["properties"], "inputs": inputs}}


def _models(operations: Sequence[Operation]) -> tuple[type[BaseModel], ...]:
    contents = [content for one in operations for content in (*one.answers, one.body) if content is not None]
    named = [content.schema for content in contents if isinstance(content.schema, type)]
    return tuple(dict.fromkeys([*named, *(model for one in operations for model in one.models), *MODELS, ErrorBody]))


@cache
def _schemas(models: tuple[type[BaseModel], ...]) -> dict[str, Any]:
    modes: list[Any] = [(model, "validation") for model in models]
    _, document = models_json_schema(modes, ref_template="#/components/schemas/{model}", schema_generator=WithoutTitles)
    schemas: dict[str, Any] = document["$defs"]
    schemas["KickoffRequest"].pop("examples", None)
    return schemas


def _operation(one: Operation, inputs: dict[str, Any]) -> dict[str, Any]:
    statuses = sorted({*one.errors, *EVERYWHERE, *([403] if one.scope else [])})
    refused = {str(status): {"$ref": f"#/components/responses/{status}"} for status in statuses}
    parameters = [*one.path_parameters, *(_query_parameters(one.query) if one.query else []), *one.parameters]
    body = {"required": True, "content": _contents([one.body], inputs)} if one.body else None
    success = {"description": "Success", "content": _contents(one.answers, inputs)}
    return {
        "operationId": one.name,
        "summary": one.summary,
        **({"description": one.description} if one.description else {}),
        "tags": [TAG],
        "security": [{"bearer": [str(one.scope)] if one.scope else []}],
        **({"parameters": parameters} if parameters else {}),
        **({"requestBody": body} if body else {}),
        "responses": {"200": success, **(one.responses or {}), **refused},
    }


def _contents(contents: Sequence[Content], inputs: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for one in contents:
        schema = ref(one.schema.__name__) if isinstance(one.schema, type) else one.schema
        example = one.example(inputs) if callable(one.example) else one.example
        named = {name: {"value": value} for name, value in (one.examples or {}).items()}
        found[one.media_type] = {"schema": schema, **({"examples": named} if named else {"example": example})}
    return found


def ref(schema: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{schema}"}


def _query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """Returns the members of the model as parameters of a query. A parameter is left out, never null."""
    found = []
    for name, schema in model.model_json_schema(schema_generator=WithoutTitles)["properties"].items():
        (kind,) = [one for one in schema.pop("anyOf", [{}]) if one.get("type") != "null"]
        description = schema.pop("description")
        given = {**kind, **schema}
        if given.get("default", 0) is None:
            del given["default"]
        found.append({"name": name, "in": "query", "description": description, "schema": given})
    return found


def _error(status: int) -> dict[str, Any]:
    description, details = ERRORS[status]
    example = {"error": TITLES[status], "message": description, "details": details}
    content = {JSON: {"schema": ref("ErrorBody"), "example": example}}
    return {"description": description, "headers": HEADERS.get(status, {}), "content": content}

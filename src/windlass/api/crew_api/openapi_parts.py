"""The parts of the OpenAPI document of a crew: operations, answers, errors and parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema

from windlass.api.crew_api.examples import ERRORS
from windlass.api.errors import TITLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel

    from windlass.rights import Scope

JSON = "application/json"
TAG = "crew"
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


def operation(
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


def error(status: int) -> dict[str, Any]:
    description, details = ERRORS[status]
    example = {"error": TITLES[status], "message": description, "details": details}
    content = {JSON: {"schema": ref("ErrorBody"), "example": example}}
    return {"description": description, "headers": HEADERS.get(status, {}), "content": content}


def json_answer(schema: str, example: Any) -> dict[str, Any]:
    return {"description": "Success", "content": {JSON: {"schema": ref(schema), "example": example}}}


def json_examples(schema: str, examples: dict[str, Any]) -> dict[str, Any]:
    named = {name: {"value": value} for name, value in examples.items()}
    return {"description": "Success", "content": {JSON: {"schema": ref(schema), "examples": named}}}


def text_answer(example: str) -> dict[str, Any]:
    return {"description": "Success", "content": {"text/plain": {"schema": {"type": "string"}, "example": example}}}


def ref(schema: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{schema}"}


def query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
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


def binary_answer(media_type: str, description: str = "Success") -> dict[str, Any]:
    content = {"schema": {"type": "string", "format": "binary"}, "example": "# Tides\n"}
    return {"description": description, "content": {media_type: content}}

"""What an operation of the crew API declares. The routes and the OpenAPI document follow from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from windlass.api.crew_api.examples import EXAMPLE_ID

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from pydantic import BaseModel
    from starlette.requests import Request
    from starlette.responses import Response

    from windlass.deployments.crews import Crew
    from windlass.rights import Scope
    from windlass.store.tokens import TokenRow

JSON = "application/json"
PATH_PARAMETERS = {
    "kickoff_id": {"schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"}, "example": EXAMPLE_ID},
    "path": {
        "description": "The path of the file, as the list has it. The slashes of a file in a folder are not encoded.",
        "schema": {"type": "string", "pattern": r"^(?!\.{1,2}$)[^/\\]+$"},
        "example": "report.md",
    },
}
IN_PATH = re.compile(r"{(\w+)(?::\w+)?}")

Handler = TypeVar("Handler", bound="Callable[..., Awaitable[Response]]")


@dataclass(frozen=True, slots=True)
class Content:
    """A body or an answer: its JSON Schema, or the model that has it, and an example.

    `example` is a value, or a function that returns it for example inputs of the crew. `examples` are several, by name.
    """

    media_type: str
    schema: Mapping[str, Any] | type[BaseModel]
    example: Any = None
    examples: Mapping[str, Any] | None = None


def json_of(model: type[BaseModel], example: Any = None, *, examples: Mapping[str, Any] | None = None) -> Content:
    return Content(JSON, model, example, examples)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the crew API.

    `scope` is the scope that it needs; None allows every valid token. `errors` are the statuses that not every
    operation has. `query` is the model of its query, `parameters` are further ones as OpenAPI has them. `responses` are
    further responses. With `by_ticket`, a stream ticket in the query replaces the token. Models that only `schema`
    of `body` refers to are in `models`.
    """

    method: str
    path: str
    summary: str
    scope: Scope | None
    answers: Sequence[Content]
    handler: Callable[..., Awaitable[Response]]
    errors: Sequence[int] = ()
    query: type[BaseModel] | None = None
    body: Content | None = None
    parameters: Sequence[Mapping[str, Any]] = ()
    responses: Mapping[str, Any] | None = None
    description: str | None = None
    models: Sequence[type[BaseModel]] = ()
    by_ticket: bool = False

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def path_parameters(self) -> list[dict[str, Any]]:
        names = IN_PATH.findall(self.path)
        return [{"name": name, "in": "path", "required": True, **PATH_PARAMETERS[name]} for name in names]


def operation(
    method: str, path: str, summary: str, scope: Scope | None, *answers: Content, **further: Any
) -> Callable[[Handler], Handler]:
    """Declares the method below it as an operation, with the members of Operation."""

    def declared(handler: Handler) -> Handler:
        handler.operation = Operation(method, path, summary, scope, answers, handler, **further)  # type: ignore[attr-defined]
        return handler

    return declared


def header(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": schema or {"type": "string"}}


def in_query(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def operations_of(api: type) -> list[Operation]:
    """Returns the operations that a class declares, in their order."""
    return [found for one in vars(api).values() if (found := getattr(one, "operation", None)) is not None]


@dataclass(frozen=True, slots=True)
class Call:
    """A request with the crew that it is for and the token that it has."""

    request: Request
    crew: Crew
    token: TokenRow

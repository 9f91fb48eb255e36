"""The control API, mounted at /api/v1: a FastAPI application whose errors have the form of the crew API's."""

# See docs/decisions/api.md#the-control-api-is-fastapi

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Mount, Route

from windlass import __version__
from windlass.api.control_api import (
    approvals,
    builds,
    credentials,
    deployments,
    identity,
    kickoffs,
    members,
    people,
    settings,
    webhooks,
)
from windlass.api.control_api.answers import ErrorBody
from windlass.api.control_api.callers import ControlRoute
from windlass.api.control_api.errors import invalid, translated
from windlass.api.docs_page import assets, docs_page
from windlass.api.errors import TITLES, wrong_method

if TYPE_CHECKING:
    from fastapi.routing import APIRoute
    from starlette.requests import Request
    from starlette.responses import Response

    from windlass.api.control_api.dependencies import ControlApi

PATH = "/api/v1"
DESCRIPTION = (
    "Deploy crews, and manage deployments, users and tokens. Every request carries `Authorization: Bearer wlp_...`, a "
    "personal access token. The role of its user decides which operations it may use: `viewer`, `developer` or "
    "`owner`. A deployment that the user does not see is answered as one that does not exist."
)
METHOD_NOT_ALLOWED = 405
EVERYWHERE = (400, 401, 403, 404, 405, 408, 413, 421, 429, 431, 500, 503)


ROUTERS = (
    people.router,
    deployments.router,
    builds.router,
    settings.router,
    members.router,
    credentials.router,
    kickoffs.router,
    webhooks.router,
    approvals.router,
    identity.router,
)


class ControlApplication(FastAPI):
    """Its document names the role that each operation needs. It has no response 422, which the server never sends."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = super().openapi()
            for route in control_operations():
                for method in route.methods or ():
                    _complete(document["paths"][route.path][method.lower()], route)
            for unused in ("HTTPValidationError", "ValidationError"):
                document["components"]["schemas"].pop(unused, None)
        return self.openapi_schema or {}


def control_operations() -> list[ControlRoute]:
    """Returns all operations of the control API."""
    return [route for router in ROUTERS for route in router.routes if isinstance(route, ControlRoute)]


def _complete(operation: dict[str, Any], route: ControlRoute) -> None:
    sentence = operation["description"].partition(".")[0]
    operation |= {"summary": sentence, "x-role": str(route.role)}
    operation["description"] += f"\n\nNeeds the role `{route.role}`."
    operation["responses"].pop("422", None)
    if route.methods != {"GET"}:
        error = operation["responses"]["400"]["content"]
        operation["responses"]["409"] = {"description": TITLES[409], "content": error}


def control_routes(control: ControlApi) -> list[Mount]:
    return [Mount(PATH, app=control_app(control))]


def control_app(control: ControlApi) -> FastAPI:
    app = ControlApplication(
        title="Windlass control API",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        servers=[{"url": PATH}],
        root_path_in_servers=False,
        strict_content_type=False,
        responses={status: {"model": ErrorBody, "description": TITLES[status]} for status in EVERYWHERE},
        generate_unique_id_function=_operation_id,
        # It would record bodies, which hold values of variables.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        exception_handlers={
            Exception: _raise_translated,
            HTTPException: _raise_translated,
            RequestValidationError: _raise_invalid,
        },
    )
    app.state.control = control
    for router in ROUTERS:
        app.include_router(router)
    app.router.routes += [Route("/docs", _docs, methods=["GET"]), Route("/docs/{name}", assets, methods=["GET"])]
    return app


def _operation_id(route: APIRoute) -> str:
    return str(route.name)


async def _docs(_: Request) -> Response:
    return docs_page("Control API")


async def _raise_translated(request: Request, error: Exception) -> NoReturn:
    """Leaves the answer to `windlass.api.application.Application`."""
    methods = _methods_of(request.scope["path"].removeprefix(PATH))
    if isinstance(error, HTTPException) and error.status_code == METHOD_NOT_ALLOWED and methods:
        raise wrong_method({"Allow": ", ".join(methods)})
    raise translated(error)


def _methods_of(path: str) -> list[str]:
    """Returns the methods that the path takes. Each has a route of its own. A path may fit the routes of several."""
    found = (route.methods or () for route in control_operations() if route.path_regex.match(path))
    return sorted({method for methods in found for method in methods})


async def _raise_invalid(_: Request, error: Exception) -> NoReturn:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for this class
    raise invalid(error.errors()) from None

"""Authenticates the callers of the control API, and checks their roles before anything else of a request is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from windlass.api.bodies import parse, read_body
from windlass.api.client_addresses import address_of, source_of_request
from windlass.api.control_api.errors import no_control_access, role_missing, unauthorized_to_control
from windlass.rights import Role
from windlass.store.tokens import PERSONAL, TokenRow

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from starlette.responses import Response

    from windlass.access.authentication import TokenAuthenticator
    from windlass.store.audit import Actor

BEARER = HTTPBearer(
    auto_error=False,
    scheme_name="bearer",
    description="A personal access token, `wlp_...`. Its user's role decides which operations it may use.",
)


@dataclass(frozen=True, slots=True)
class Caller:
    """The person who sent the request. `address` is that of the client."""

    token: TokenRow
    name: str
    role: Role
    address: str

    @property
    def actor(self) -> Actor:
        return self.token.actor(self.address)


class HasRole:
    """Marks a route with the role that it needs. `ControlRoute` checks the role."""

    def __init__(self, role: Role) -> None:
        self.role = role

    async def __call__(self, request: Request, _: Annotated[object, Security(BEARER)]) -> Caller:
        caller: Caller = request.state.caller
        return caller


Viewer = Annotated[Caller, Depends(HasRole(Role.VIEWER))]
Developer = Annotated[Caller, Depends(HasRole(Role.DEVELOPER))]
Owner = Annotated[Caller, Depends(HasRole(Role.OWNER))]


class BoundedRequest(Request):
    """A request whose body is read with the limits of size and time that bodies of the crew API have."""

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            control = self.app.state.control
            self._body = await read_body(self, control.largest_body, control.request_timeout)
        return self._body

    async def json(self) -> Any:
        return parse(await self.body())


class ControlRoute(APIRoute):
    """A route that authenticates, and checks the role and what the person sees, before it reads the body. A route
    without a role can't be made.
    """

    @property
    def role(self) -> Role:
        (role,) = [one.call.role for one in self.dependant.dependencies if isinstance(one.call, HasRole)]
        return role

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, role = super().get_route_handler(), self.role

        async def handle_of_caller(request: Request) -> Response:
            control = request.app.state.control
            caller = request.state.caller = await authorized(request, control.access, role)
            await control.members.check_path(request.path_params, caller.actor)
            return await handle(BoundedRequest(request.scope, request.receive))

        return handle_of_caller


async def authorized(request: Request, access: TokenAuthenticator, role: Role) -> Caller:
    """Returns the person whose personal token the request has. Raises Problem 401, or 403 for one without the role."""
    source = source_of_request(request.scope)
    given = request.headers.getlist("authorization")
    token = await access.token(given[0] if len(given) == 1 else None, source)
    if token is not None and token.kind != PERSONAL:
        access.failures.count(source)
        token = None
    if token is None:
        raise unauthorized_to_control()
    if token.role is None:
        raise no_control_access()
    if not token.role.includes(role):
        raise role_missing(role, token.role)
    return Caller(token, token.user or "", token.role, address_of(request.scope))

"""A person who uses the control API of the shared server."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from windlass.api.control_api.application import control_app

if TYPE_CHECKING:
    import httpx

    from api.serving import Server
    from windlass.api.control_api.dependencies import ControlApi
    from windlass.rights import Role

_numbers = itertools.count(1)


@cache
def document() -> dict[str, Any]:
    """Returns the OpenAPI document. It does not depend on what the endpoints use."""
    return control_app(cast("ControlApi", None)).openapi()


@dataclass
class Person:
    """`http` of the server checks each answer against the OpenAPI document of the control API."""

    server: Server
    name: str
    token: str

    @classmethod
    async def of(cls, server: Server, role: Role, name: str | None = None) -> Person:
        """Returns a new user of this role, with a personal token."""
        name = name or f"{role} {next(_numbers)}"
        await server.tokens.add_user(name, role)
        _, token = await server.tokens.create_personal(name, "test")
        return cls(server, name, token.reveal())

    async def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}", **more.pop("headers", {})}
        described = {"document": document(), "path": path.partition("?")[0]}
        return await self.server.http.request(
            method, f"{self.server.url}/api/v1{path}", headers=headers, extensions=described, **more
        )

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.request("GET", path, **more)

    async def value(self, method: str, path: str, *, status: int = 200, **more: Any) -> Any:
        """Returns the JSON of the answer, which must have this status."""
        answer = await self.request(method, path, **more)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def refused(self, method: str, path: str, *, status: int, **more: Any) -> dict[str, Any]:
        """Returns the error of the answer, which must have this status."""
        found: dict[str, Any] = await self.value(method, path, status=status, **more)
        return found

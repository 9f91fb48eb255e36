"""A person who uses the control API of the shared server."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

    from api.serving import Server
    from windlass.kickoffs.roles import Role

_numbers = itertools.count(1)


@dataclass
class Person:
    """`http` of the server checks that each error has the one form of errors."""

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
        return await self.server.http.request(method, f"{self.server.url}/api/v1{path}", headers=headers, **more)

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

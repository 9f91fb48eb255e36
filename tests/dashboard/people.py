"""People who use the dashboard of the shared server, in a browser or as plain HTTP."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from patience import DEADLINE
from windlass.rights import Role

if TYPE_CHECKING:
    from api.serving import Server
    from dashboard.browser import Tab, Tabs

PASSWORD = "correct horse battery"

_numbers = itertools.count(1)


async def user(server: Server, role: Role = Role.OWNER, password: str | None = None) -> str:
    """The name of a new user."""
    name = f"{role} {next(_numbers)}"
    await server.tokens.add_user(name, role)
    if password:
        await server.dashboard.sessions.set_password(name, password)
    return name


async def link(server: Server, name: str) -> str:
    code = await server.dashboard.sessions.new_link(name)
    return f"/ui/sign-in?code={code.reveal()}"


async def signed_in(tabs: Tabs, server: Server, role: Role = Role.OWNER, **settings: Any) -> Tab:
    """A tab of a new user, who has signed in."""
    tab = await tabs(server.url, **settings)
    await tab.go(await link(server, await user(server, role)))
    return tab


@dataclass
class Visitor:
    """A browser without a screen: it keeps cookies, follows no redirect, and says that its requests are its own."""

    http: httpx.AsyncClient
    name: str

    @classmethod
    async def of(cls, server: Server, role: Role | None = None) -> Visitor:
        """A new user who has signed in; nobody, without a role."""
        headers = {"Sec-Fetch-Site": "same-origin", "User-Agent": "a test"}
        visitor = cls(httpx.AsyncClient(base_url=server.url, timeout=DEADLINE, headers=headers), "")
        if role is not None:
            visitor.name = await user(server, role)
            answer = await visitor.get(await link(server, visitor.name))
            assert answer.status_code == 303, answer.text
        return visitor

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.http.get(path, **more)

    async def csrf(self) -> str:
        """What the forms of this session send along."""
        found = re.search(r'name="csrf" value="(\w+)"', (await self.get("/ui/account")).text)
        assert found
        return found[1]

    async def post(self, path: str, *, csrf: str | None = None, **fields: Any) -> httpx.Response:
        """Sends a form, as the page has it; `csrf` "" sends none."""
        token = await self.csrf() if csrf is None else csrf
        return await self.http.post(path, data={**fields, **({"csrf": token} if token else {})})

    async def close(self) -> None:
        await self.http.aclose()

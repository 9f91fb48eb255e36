"""Constant requests of many clients, as a service has them, and what became of each."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import httpx

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

PAUSE = 0.05
"""Seconds between two requests of one client."""
ENDED = {"SUCCESS", "FAILED"}


@dataclass(slots=True)
class Load:
    """`addresses` are those of a proxy, or of servers that clients change between.

    One client waits for the end of the kickoff `held`, again and again. With several addresses, a client whose
    connection is refused goes to the next one, as a proxy does. Nothing else is repeated.
    """

    addresses: Sequence[str]
    path: str
    token: str
    held: str
    clients: int = 4
    requests: int = 0
    failures: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    _sent: asyncio.Condition = field(default_factory=asyncio.Condition)

    @asynccontextmanager
    async def applied(self) -> AsyncIterator[Self]:
        """Sends requests for the time of the block."""
        async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
            ending = asyncio.Event()
            tasks = [asyncio.create_task(self._client(http, number, ending)) for number in range(self.clients)]
            tasks.append(asyncio.create_task(self._waiting_client(http, ending)))
            try:
                yield self
            finally:
                ending.set()
                await asyncio.gather(*tasks)

    async def go_on(self, requests: int) -> None:
        """Returns after so many further requests."""
        wanted = self.requests + requests
        async with asyncio.timeout(120), self._sent:
            await self._sent.wait_for(lambda: self.requests >= wanted)

    async def states(self) -> dict[str, int]:
        """Waits until every accepted kickoff has ended. By state, their number."""
        found: dict[str, int] = {}
        async with httpx.AsyncClient(timeout=60, trust_env=False) as http, asyncio.timeout(240):
            for kickoff in self.accepted:
                while (state := (await self._send(http, 0, "GET", f"status/{kickoff}?wait=20"))["state"]) not in ENDED:
                    pass
                found[state] = found.get(state, 0) + 1
        return found

    async def _client(self, http: httpx.AsyncClient, number: int, ending: asyncio.Event) -> None:
        while not ending.is_set():
            name = secrets.token_hex(6)
            body = {"inputs": {"run": name, "seconds": 0, "hold": 0}}
            answer = await self._tried(http, number, "POST", "kickoff", body, {"Idempotency-Key": name})
            if kickoff := answer.get("kickoff_id"):
                self.accepted.append(kickoff)
                await self._tried(http, number, "GET", f"status/{kickoff}?wait=1")
            await self._tried(http, number, "GET", "kickoffs?limit=5")
            await asyncio.sleep(PAUSE)

    async def _waiting_client(self, http: httpx.AsyncClient, ending: asyncio.Event) -> None:
        while not ending.is_set():
            await self._tried(http, 0, "GET", f"status/{self.held}?wait=30")

    async def _tried(self, http: httpx.AsyncClient, number: int, method: str, path: str, *more: Any) -> dict[str, Any]:
        try:
            answer = await self._send(http, number, method, path, *more)
        except (httpx.TransportError, httpx.HTTPStatusError) as error:
            text = error.response.text if isinstance(error, httpx.HTTPStatusError) else ""
            self.failures.append(f"{method} {path}: {type(error).__name__} {error} {text}")
            return {}
        finally:
            self.requests += 1
            async with self._sent:
                self._sent.notify_all()
        return answer

    async def _send(
        self, http: httpx.AsyncClient, number: int, method: str, path: str, body: Any = None, headers: Any = None
    ) -> dict[str, Any]:
        given = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        for turn in range(len(self.addresses)):
            address = self.addresses[(number + turn) % len(self.addresses)]
            try:
                answer = await http.request(method, f"{address}{self.path}/{path}", json=body, headers=given)
            except httpx.ConnectError:
                if turn == len(self.addresses) - 1:
                    raise
                continue
            answer.raise_for_status()
            found: dict[str, Any] = answer.json()
            return found
        raise AssertionError

"""Two workers and two API servers on one PostgreSQL, with the witness and the audit: what the faults are done to."""

from __future__ import annotations

import asyncio
import base64
import secrets
import socket
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import httpx
import psycopg

from faults.node import Node
from faults.registered import registered
from faults.small_disk import small_disk
from faults.watch import ResourceMonitor
from faults.witness import Witness
from patience import DEADLINE
from projects_for_tests.homes import give_database
from store.audit import Audit
from store.proxy import Proxy
from windlass.embedded_postgres.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

KINDS = ("function", "crew", "flow")
FAST = {"WINDLASS_LEASE": "2", "WINDLASS_STOP_GRACE": "1", "WINDLASS_DRAIN_GRACE": "1"}
"""Settings with which what takes a minute else takes seconds."""

USUAL = {"WINDLASS_SLOTS": "3", "WINDLASS_MAX_LOSSES": "100"}
ENDED = {"SUCCESS", "FAILED"}


@dataclass(slots=True)
class Started:
    """A kickoff that was accepted. `run` is its name at the witness."""

    run: str
    id: str
    slug: str
    at: float = field(default_factory=time.time)


class Cluster:
    """In `place`, a folder that every user can pass through. With a `disk` of so many megabytes PostgreSQL gets one of
    its own, where we may mount one. `reuse` is the option of its projects, and `forked` that of its nodes.
    """

    def __init__(
        self,
        place: Path,
        *,
        kinds: Sequence[str] = KINDS,
        settings: Mapping[str, str] = FAST,
        workers: int = 2,
        apis: int = 2,
        disk: int = 0,
        reuse: int = 1,
        forked: bool = False,
    ) -> None:
        self.place = place
        self.kinds = kinds
        self.settings = {**USUAL, **settings}
        self.postgres_home = place / "disk" / "postgres"
        self.disk_is_ours = False
        self.reuse = reuse
        self._forked = forked
        self._disk = disk
        self.accepted: list[Started] = []
        self._counts = (workers, apis)
        self._turn = 0
        self._stack = AsyncExitStack()

    @property
    def lease(self) -> float:
        return float(self.settings.get("WINDLASS_LEASE", 15))

    @property
    def slots(self) -> int:
        """Of each worker."""
        return int(self.settings["WINDLASS_SLOTS"])

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self.witness = stack.enter_context(Witness())
            await self._start_postgres(stack)
            self._key = base64.b64encode(secrets.token_bytes(32)).decode()
            self.tokens = await self._register()
            self.audit = Audit(self.url)
            self.audit.install()
            self.client = await stack.enter_async_context(httpx.AsyncClient(timeout=60, trust_env=False))
            await self._make_nodes(stack)
            self.watch = await stack.enter_async_context(ResourceMonitor(self.witness))
            for node in self.nodes:
                await self.start(node)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start_postgres(self, stack: AsyncExitStack) -> None:
        if self._disk:
            self.disk_is_ours = stack.enter_context(small_disk(self.postgres_home.parent, self._disk))
        give_database(self.postgres_home)
        postgres = EmbeddedPostgres(self.postgres_home)
        stack.callback(postgres.stop)
        self.url = await asyncio.to_thread(postgres.start)

    async def _register(self) -> dict[str, str]:
        """Makes the crews of the cluster. Returns a token for each kind."""
        return await registered(self.kinds, self.place, self.url, self._key, self.witness.environment, self.reuse)

    async def _make_nodes(self, stack: AsyncExitStack) -> None:
        """Each reaches PostgreSQL on a way of its own, which can be cut."""
        workers, apis = self._counts
        self.proxies: dict[str, Proxy] = {}
        self.ports: dict[str, int] = {}
        self.workers = [await self._node(stack, f"worker-{number}", ["worker"]) for number in range(1, workers + 1)]
        self.apis = [await self._node(stack, f"api-{number}", ["api"]) for number in range(1, apis + 1)]

    @property
    def nodes(self) -> list[Node]:
        return [*self.workers, *self.apis]

    async def _node(self, stack: AsyncExitStack, name: str, order: list[str]) -> Node:
        proxy = await stack.enter_async_context(Proxy(self.url))
        self.proxies[name], self.ports[name] = proxy, free_port()
        own = {
            "WINDLASS_DATABASE_URL": proxy.url,
            "WINDLASS_MASTER_KEY": self._key,
            "WINDLASS_PORT": str(self.ports[name]),
        }
        node = Node(self.place / name, order, {**self.settings, **self.witness.environment, **own}, forked=self._forked)
        stack.callback(node.kill)
        return node

    async def start(self, node: Node) -> None:
        """Returns when it is ready."""
        node.start()
        await self.until(lambda: self.is_ready(node), f"{node.name} is ready", lambda: node.log)

    async def is_ready(self, node: Node) -> bool:
        assert node.lives, node.log
        return await (self._answers(node) if node in self.apis else self._is_seen(node))

    async def _is_seen(self, worker: Node) -> bool:
        query = "SELECT 1 FROM workers WHERE pid = %(pid)s"
        return bool(await asyncio.to_thread(self.audit.rows, query, pid=worker.pid))

    async def _answers(self, api: Node) -> bool:
        try:
            return (await self.client.get(f"{self.address(api)}/ready")).status_code == 200
        except httpx.TransportError:
            return False

    def address(self, api: Node) -> str:
        return f"http://127.0.0.1:{self.ports[api.name]}"

    async def kickoff(self, kind: str, **inputs: Any) -> Started:
        """Asked for until an answer came, at one server after the other, with the same idempotency key."""
        run = secrets.token_hex(6)
        body = {"inputs": {"run": run, "seconds": 0, "hold": 0, **inputs}}
        answer = await self._ask("POST", kind, "kickoff", body, {"Idempotency-Key": run})
        started = Started(run, answer["kickoff_id"], kind)
        self.accepted.append(started)
        return started

    async def status(self, started: Started, wait: float = 0) -> dict[str, Any]:
        return await self._ask("GET", started.slug, f"status/{started.id}?wait={wait:g}")

    async def ended(self, started: Started, within: float = DEADLINE) -> dict[str, Any]:
        async with asyncio.timeout(within):
            while (status := await self.status(started, wait=5))["state"] not in ENDED:
                pass
        return status

    async def _ask(
        self, method: str, kind: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        given = {"Authorization": f"Bearer {self.tokens[kind]}", **(headers or {})}
        found: dict[str, Any] = {}

        async def answered() -> bool:
            self._turn += 1
            api = self.apis[self._turn % len(self.apis)]
            url = f"{self.address(api)}/crews/witnessed-{kind}/{path}"
            try:
                answer = await self.client.request(method, url, json=body, headers=given)
            except httpx.TransportError:
                return False
            assert answer.status_code in {200, 503}, answer.text
            found.update(answer.json() if answer.status_code == 200 else {})
            return answer.status_code == 200

        await self.until(answered, f"{method} {path} is answered")
        return found

    async def in_flight(self, started: Started, step: int = 1) -> None:
        """Returns when the model is being asked for this step."""

        async def asked() -> bool:
            return any(call.step == step for call in self.witness.in_flight(started.run))

        await self.until(asked, f"step {step} of {started.id} is in flight", self._logs)

    async def worker_of(self, started: Started) -> Node:
        query = """
            SELECT pid FROM kickoffs JOIN workers ON workers.id = worker_id WHERE kickoffs.id = %(id)s
        """
        (row,) = await asyncio.to_thread(self.audit.rows, query, id=started.id)
        return next(worker for worker in self.workers if worker.pid == row["pid"])

    def attempts(self, started: Started) -> list[str]:
        """What became of each, in words."""
        query = """
            SELECT concat(started_at::time(1), ' to ', ended_at::time(1), ': ', ended_as, ', ', why) AS told
              FROM attempts
             WHERE kickoff_id::text = %(id)s
             ORDER BY attempt
        """
        return [row["told"] for row in self.audit.rows(query, id=started.id)]

    def _logs(self) -> str:
        return "\n".join(f"--- {node.name}\n{node.log[-3000:]}" for node in self.nodes)

    async def until(
        self, holds: Callable[[], Awaitable[bool]], what: str, more: Callable[[], str] = lambda: ""
    ) -> None:
        deadline = time.monotonic() + DEADLINE
        while not await with_database(holds):
            assert time.monotonic() < deadline, f"not within {DEADLINE:.0f} s: {what}. {more()}"
            await asyncio.sleep(0.02)

    def kickoff_ids(self) -> dict[UUID, Started]:
        return {UUID(started.id): started for started in self.accepted}


async def with_database(holds: Callable[[], Awaitable[bool]]) -> bool:
    """False, too, while PostgreSQL is away."""
    try:
        return await holds()
    except psycopg.OperationalError:
        return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
